// What mlx-rs calls and mlx-c, built on Linux, does not define.
//
// half.h gives the half-precision types on aarch64 only, through compiler headers
// that libclang may lack. Set-up switches it off everywhere (-DMLX_HALF_H), and
// these four functions pass the bits as u16 on both architectures.
#include <cstdint>
#include <cstring>
#include <ctime>

#include "mlx/c/array.h"
#include "mlx/c/error.h"
#include "mlx/c/private/mlx.h"

// mlx-rs seeds its random state from this Mach call: a monotonic clock in nanoseconds.
extern "C" uint64_t mach_approximate_time(void) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// The size in bytes of the allocation that an evaluated array lies in, and where in it the
// array begins: what a view of its memory is proven against.
extern "C" int prefill_array_buffer(size_t* size, int64_t* offset, const mlx_array array) {
  try {
    const auto& found = mlx_array_get_(array);
    if (found.data_shared_ptr() == nullptr) {
      mlx_error("the array is not evaluated");
      return 1;
    }
    *size = found.buffer_size();
    *offset = found.offset();
    return 0;
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
}

namespace {

template <typename T>
int item_bits(uint16_t* result, const mlx_array array) {
  try {
    T value = mlx_array_get_(array).item<T>();
    static_assert(sizeof(value) == sizeof(*result));
    std::memcpy(result, &value, sizeof(value));
    return 0;
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
}

template <typename T>
const uint16_t* data_bits(const mlx_array array) {
  try {
    return reinterpret_cast<const uint16_t*>(mlx_array_get_(array).data<T>());
  } catch (std::exception& e) {
    mlx_error(e.what());
    return nullptr;
  }
}

} // namespace

extern "C" int mlx_array_item_float16(uint16_t* result, const mlx_array array) {
  return item_bits<mlx::core::float16_t>(result, array);
}

extern "C" int mlx_array_item_bfloat16(uint16_t* result, const mlx_array array) {
  return item_bits<mlx::core::bfloat16_t>(result, array);
}

extern "C" const uint16_t* mlx_array_data_float16(const mlx_array array) {
  return data_bits<mlx::core::float16_t>(array);
}

extern "C" const uint16_t* mlx_array_data_bfloat16(const mlx_array array) {
  return data_bits<mlx::core::bfloat16_t>(array);
}
