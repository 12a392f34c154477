#include "train/story_optimizer.h"

#include <algorithm>
#include <cmath>

#include "train/fast_ops.h"

namespace millrace {
namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.95, kEpsilon = 1e-8;
constexpr double kMuonMomentum = 0.95;

// The nearest matrix with all singular values about 1 (quintic Newton-Schulz, coefficients of Jordan et al.).
torch::Tensor orthogonalize(const torch::Tensor& gradient) {
  const bool tall = gradient.size(0) > gradient.size(1);
  torch::Tensor x = (tall ? gradient.t() : gradient).contiguous();
  x = x / (x.norm() + 1e-7);
  if (has_fast_bf16()) x = x.to(torch::kBFloat16);  // singular values end up in 0.7..1.2 either way
  for (int i = 0; i < 5; ++i) {
    torch::Tensor a = torch::mm(x, x.t());
    torch::Tensor b = torch::addmm(a, a, a, /*beta=*/-4.7750, /*alpha=*/2.0315);
    x = torch::addmm(x, b, x, /*beta=*/3.4445, /*alpha=*/1.0);
  }
  x = x.to(torch::kFloat32);
  return tall ? x.t() : x;
}

}  // namespace

StoryOptimizer::StoryOptimizer(StoryModel& model, const StoryOptimizerConfig& config) : config_(config) {
  const StoryModelConfig& shape = model.config();
  const int64_t kv = shape.kv_heads * shape.head_dim();
  for (const auto& item : model.named_parameters()) {
    Slot slot;
    slot.name = item.key();
    slot.parameter = item.value();
    const bool matrix = slot.parameter.dim() == 2 && slot.name != "embedding";
    slot.muon = config.muon && matrix;
    slot.decay = matrix ? config.weight_decay : 0.0;
    slot.first = torch::zeros_like(slot.parameter);
    slot.second = slot.muon ? torch::zeros({1}) : torch::zeros_like(slot.parameter);
    slot.parts = {slot.parameter.size(0)};
    if (slot.name.find("_qkv") != std::string::npos) slot.parts = {shape.dim, kv, kv};
    if (slot.name.find("_gate_up") != std::string::npos) slot.parts = {shape.ffn, shape.ffn};
    slots_.push_back(std::move(slot));
  }
}

void StoryOptimizer::adam(Slot& slot, double rate) {
  const torch::Tensor& g = slot.parameter.grad();
  slot.first.mul_(kBeta1).add_(g, 1 - kBeta1);
  slot.second.mul_(kBeta2).addcmul_(g, g, 1 - kBeta2);
  const double t = static_cast<double>(steps_);
  const double corrected = rate / (1 - std::pow(kBeta1, t));
  torch::Tensor denominator = (slot.second / (1 - std::pow(kBeta2, t))).sqrt_().add_(kEpsilon);
  if (slot.decay > 0) slot.parameter.mul_(1 - rate * slot.decay);
  slot.parameter.addcdiv_(slot.first, denominator, -corrected);
}

void StoryOptimizer::muon(Slot& slot, double rate) {
  const torch::Tensor& g = slot.parameter.grad();
  slot.first.lerp_(g, 1 - kMuonMomentum);
  torch::Tensor nesterov = torch::lerp(g, slot.first, kMuonMomentum);
  slot.parameter.mul_(1 - rate * slot.decay);
  int64_t row = 0;
  for (int64_t rows : slot.parts) {
    torch::Tensor update = orthogonalize(nesterov.narrow(0, row, rows));
    const double ratio = static_cast<double>(rows) / static_cast<double>(slot.parameter.size(1));
    slot.parameter.narrow(0, row, rows).add_(update, -rate * std::sqrt(std::max(1.0, ratio)));
    row += rows;
  }
}

double StoryOptimizer::step(double schedule) {
  torch::NoGradGuard no_gradient;
  ++steps_;
  double squares = 0;
  for (const Slot& slot : slots_) squares += slot.parameter.grad().square().sum().item<double>();
  const double norm = std::sqrt(squares);
  for (Slot& slot : slots_) {
    if (norm > config_.clip) slot.parameter.mutable_grad().mul_(config_.clip / norm);
    if (slot.muon) {
      muon(slot, config_.muon_rate * schedule);
    } else {
      adam(slot, config_.adam_rate * schedule);
    }
    slot.parameter.mutable_grad().zero_();
  }
  return norm;
}

void StoryOptimizer::save(torch::serialize::OutputArchive& archive) const {
  archive.write("optimizer_steps", torch::tensor(steps_, torch::kInt64));
  for (const Slot& slot : slots_) {
    archive.write(slot.name + "_first", slot.first);
    archive.write(slot.name + "_second", slot.second);
  }
}

void StoryOptimizer::load(torch::serialize::InputArchive& archive) {
  torch::Tensor steps;
  archive.read("optimizer_steps", steps);
  steps_ = steps.item<int64_t>();
  for (Slot& slot : slots_) {
    archive.read(slot.name + "_first", slot.first);
    archive.read(slot.name + "_second", slot.second);
  }
}

}  // namespace millrace
