//! x
#[test]
fn add() {
    let a = mlx_rs::Array::from_slice(&[1.0f32, 2.0], &[2]);
    let b = mlx_rs::ops::add(&a, &a).unwrap();
    assert_eq!(b.as_slice::<f32>(), &[2.0, 4.0]);
    println!("{:?}", mlx_rs::Device::default());
}
