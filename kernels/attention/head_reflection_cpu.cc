#include <algorithm>
#include <cmath>

#include "kernels/attention/head_reflection.h"
#include "kernels/convert/partial_sums.h"
#include "spillway/error.h"
#include "spillway/kv_block.h"  // kKvGroup

namespace spillway::kernels {
namespace {

constexpr int64_t kRowsPerTask = 16;

float Dot(const float* x, const float* y, int64_t size) {
  float sums[kPartialSums] = {};
  int64_t i = 0;
  for (; i + kPartialSums <= size; i += kPartialSums) {
    for (int64_t lane = 0; lane < kPartialSums; ++lane) sums[lane] += x[i + lane] * y[i + lane];
  }
  for (int64_t lane = 0; i + lane < size; ++lane) sums[lane] += x[i + lane] * y[i + lane];
  return TotalOf(sums);
}

void ReflectHead(const float* reflector, int64_t head_dim, float* x) {
  for (int64_t begin = 0; begin < head_dim; begin += kKvGroup) {
    const int64_t size = std::min(kKvGroup, head_dim - begin);
    const float* v = reflector + begin;
    const float along = Dot(v, x + begin, size);
    for (int64_t i = 0; i < size; ++i) x[begin + i] -= along * v[i];
  }
}

void AddDirections(const float* key, int64_t head_dim, double* sum) {
  for (int64_t begin = 0; begin < head_dim; begin += kKvGroup) {
    const int64_t end = std::min(begin + kKvGroup, head_dim);
    double squares = 0.0;
    for (int64_t d = begin; d < end; ++d) squares += static_cast<double>(key[d]) * key[d];
    if (squares == 0.0) continue;
    for (int64_t d = begin; d < end; ++d) sum[d] += key[d] / std::sqrt(squares);
  }
}

void MakeReflector(const double* common, int64_t head_dim, float* reflector) {
  for (int64_t begin = 0; begin < head_dim; begin += kKvGroup) {
    const int64_t size = std::min(kKvGroup, head_dim - begin);
    double squares = 0.0;
    double sum = 0.0;
    for (int64_t i = begin; i < begin + size; ++i) {
      squares += common[i] * common[i];
      sum += common[i];
    }
    std::fill_n(reflector + begin, size, 0.0F);
    if (!(squares > 0.0) || !std::isfinite(squares)) continue;
    // v lies along common + equal, both of length 1. `equal` is that one of the two directions of
    // equal elements that is nearer to `common`, so that nothing cancels; a minimum may have either
    // sign.
    const double length = std::sqrt(squares);
    const double equal = std::copysign(1.0 / std::sqrt(static_cast<double>(size)), sum);
    const double cosine = std::abs(sum) / length / std::sqrt(static_cast<double>(size));
    const double scale = 1.0 / std::sqrt(1.0 + cosine);
    for (int64_t i = begin; i < begin + size; ++i)
      reflector[i] = static_cast<float>(scale * (common[i] / length + equal));
  }
}

}  // namespace

void ReflectHeads(const HeadReflectionArgs& args, ThreadPool& pool) {
  SPILLWAY_CHECK(args.num_kv_heads > 0 && args.num_heads % args.num_kv_heads == 0);
  const int64_t group = args.num_heads / args.num_kv_heads;
  auto reflect = [&](int64_t task, int /*worker*/) {
    const int64_t end = std::min(args.rows, (task + 1) * kRowsPerTask);
    for (int64_t row = task * kRowsPerTask; row < end; ++row) {
      for (int64_t head = 0; head < args.num_heads; ++head) {
        ReflectHead(args.reflectors + head / group * args.head_dim, args.head_dim,
                    args.x + row * args.stride + head * args.head_dim);
      }
    }
  };
  pool.Run((args.rows + kRowsPerTask - 1) / kRowsPerTask, reflect);
}

void AddKeyDirections(const KeyDirectionArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t head = 0; head < args.num_kv_heads; ++head) {
      const int64_t at = head * args.head_dim;
      AddDirections(args.keys + row * args.stride + at, args.head_dim, args.common + at);
    }
  }
}

void MakeReflectors(const ReflectorArgs& args) {
  for (int64_t head = 0; head < args.num_kv_heads; ++head) {
    double* common = args.common + head * args.head_dim;
    MakeReflector(common, args.head_dim, args.reflectors + head * args.head_dim);
    std::fill_n(common, args.head_dim, 0.0);
  }
}

}  // namespace spillway::kernels
