//! A line chart as SVG text.

use std::fmt::Write;

/// Token hit ratios of a policy, one for each capacity.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) ratios: Vec<f64>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 50.0;
/// Least distance between the names at the curves' ends.
const LINE: f64 = 15.0;
/// Okabe and Ito's colours, which colour-blind people can tell apart, and two greys.
const COLOURS: [&str; 10] = [
    "#999999", "#000000", "#e69f00", "#b8860b", "#8c564b", "#009e73", "#56b4e9", "#cc79a7",
    "#d55e00", "#0072b2",
];

/// Draws the curves over equally spaced capacities.
pub(crate) fn svg(capacities: &[String], curves: &[Curve]) -> String {
    let highest = curves
        .iter()
        .flat_map(|curve| &curve.ratios)
        .fold(0.01_f64, |a, b| a.max(*b));
    let step = if highest > 0.4 { 0.1 } else { 0.05 };
    let top = (highest / step).ceil() * step;
    let gaps = capacities.len().saturating_sub(1).max(1) as f64;
    let x = |index: usize| LEFT + (WIDTH - LEFT - RIGHT) * index as f64 / gaps;
    let y = |ratio: f64| HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * ratio / top;

    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let mut put = |element: String| {
        out.push_str(&element);
        out.push('\n');
    };
    for line in 0..=(top / step).round() as u32 {
        let ratio = f64::from(line) * step;
        let (y, end, label) = (y(ratio), WIDTH - RIGHT, (100.0 * ratio).round());
        put(format!(
            "<path d=\"M{LEFT} {y:.1}H{end}\" stroke=\"#dddddd\"/>"
        ));
        put(text(
            LEFT - 8.0,
            y + 4.0,
            "end",
            "black",
            &format!("{label} %"),
        ));
    }
    for (index, capacity) in capacities.iter().enumerate() {
        put(text(
            x(index),
            HEIGHT - BOTTOM + 20.0,
            "middle",
            "black",
            capacity,
        ));
    }
    put(text(
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 8.0,
        "middle",
        "black",
        "capacity",
    ));

    // Names beside the curves' ends, moved apart from the top down.
    let ends = curves.iter().enumerate();
    let mut ends: Vec<(usize, f64)> = ends
        .map(|(index, curve)| (index, y(curve.ratios.last().copied().unwrap_or(0.0))))
        .collect();
    ends.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut lowest = f64::MIN;
    for (index, end) in ends {
        let Curve { name, ratios } = &curves[index];
        let colour = COLOURS[index % COLOURS.len()];
        let mut path = String::new();
        for (place, ratio) in ratios.iter().enumerate() {
            let verb = if place == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{verb}{:.1} {:.1}", x(place), y(*ratio));
        }
        let width = if name == "adaptive" { 3.0 } else { 1.5 };
        let dash = if name.starts_with('(') {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        put(format!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"{dash}/>"
        ));
        lowest = end.max(lowest + LINE);
        put(text(
            WIDTH - RIGHT + 8.0,
            lowest + 4.0,
            "start",
            colour,
            name,
        ));
    }
    out.push_str("</svg>\n");
    out
}

fn text(x: f64, y: f64, anchor: &str, colour: &str, content: &str) -> String {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{content}</text>"
    )
}
