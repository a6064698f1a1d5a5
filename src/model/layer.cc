#include "spillway/layer.h"

namespace spillway {
namespace {

struct OpBufs {
  std::vector<Buf>& bufs;

  void operator()(const Gather& gather) { bufs.push_back(gather.y); }
  void operator()(const Norm& norm) {
    bufs.insert(bufs.end(), {norm.x, norm.y});
    if (norm.plus) bufs.push_back(*norm.plus);
  }
  void operator()(const Linear& linear) {
    bufs.insert(bufs.end(), {linear.x, linear.y.buf});
    if (linear.times) bufs.push_back(*linear.times);
    if (linear.plus) bufs.push_back(*linear.plus);
  }
  void operator()(const Rotate& rotate) { bufs.push_back(rotate.x.buf); }
  void operator()(const HeadNorm& norm) { bufs.push_back(norm.x.buf); }
  void operator()(const Attend& attend) { bufs.insert(bufs.end(), {attend.qkv, attend.y}); }
  void operator()(const SoftCap& cap) { bufs.push_back(cap.x); }
  void operator()(const Choose& choose) { bufs.insert(bufs.end(), {choose.x, choose.y}); }
  void operator()(const Experts& experts) {
    bufs.insert(bufs.end(), {experts.x, experts.choice, experts.y});
    for (const Expert& expert : experts.experts) {
      (*this)(expert.gate);
      (*this)(expert.up);
      (*this)(expert.down);
    }
  }
};

struct OpTensors {
  std::vector<TensorRef>& tensors;

  void operator()(const Gather& gather) { Add(gather.table); }
  void operator()(const Norm& norm) {
    Add(norm.weight);
    Add(norm.bias);
  }
  void operator()(const Linear& linear) {
    Add(linear.weight);
    Add(linear.bias);
  }
  void operator()(const HeadNorm& norm) { Add(norm.weight); }
  void operator()(const Rotate&) {}
  void operator()(const Attend& attend) { Add(attend.sinks); }
  void operator()(const SoftCap&) {}
  void operator()(const Choose&) {}
  void operator()(const Experts& experts) {
    for (const Expert& expert : experts.experts) {
      (*this)(expert.gate);
      (*this)(expert.up);
      (*this)(expert.down);
    }
  }

  void Add(TensorRef ref) {
    if (ref.exists()) tensors.push_back(ref);
  }
};

}  // namespace

const Attend& AttendOf(const std::vector<Op>& ops) {
  return std::get<Attend>(*std::ranges::find_if(ops, IsAttend));
}

const Rope* RopeOf(const std::vector<Op>& ops) {
  const auto at =
      std::ranges::find_if(ops, [](const Op& op) { return std::holds_alternative<Rotate>(op); });
  return at == ops.end() ? nullptr : &std::get<Rotate>(*at).rope;
}

bool HasExperts(const std::vector<Op>& ops) {
  return std::ranges::any_of(ops, [](const Op& op) { return std::holds_alternative<Experts>(op); });
}

std::vector<const Linear*> ProductsOf(const std::vector<Op>& ops) {
  std::vector<const Linear*> products;
  for (const Op& op : ops) {
    if (const auto* linear = std::get_if<Linear>(&op)) products.push_back(linear);
    if (const auto* experts = std::get_if<Experts>(&op))
      std::ranges::copy(ProductsOf(*experts), std::back_inserter(products));
  }
  return products;
}

std::vector<const Linear*> ProductsOf(const Experts& experts) {
  std::vector<const Linear*> products;
  for (const Expert& expert : experts.experts)
    products.insert(products.end(), {&expert.gate, &expert.up, &expert.down});
  return products;
}

std::vector<Buf> BufsOf(const std::vector<Op>& ops) {
  std::vector<Buf> bufs;
  for (const Op& op : ops) std::visit(OpBufs{bufs}, op);
  return bufs;
}

std::vector<TensorRef> TensorsOf(const std::vector<Op>& ops) {
  std::vector<TensorRef> tensors;
  for (const Op& op : ops) std::visit(OpTensors{tensors}, op);
  return tensors;
}

}  // namespace spillway
