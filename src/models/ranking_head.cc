#include "models/ranking_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/ordered_json.h"
#include "models/weight_loader.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxLabels = 1024;
constexpr const char* kOut = "cls.output.weight";

bool is_ranker(const ModelFiles& files) {
  if (files.kind == ModelFiles::Kind::huggingface) return files.architecture.ends_with("ForSequenceClassification");
  const auto pooling = files.config->find(files.architecture + ".pooling_type");
  return pooling != files.config->end() && pooling->is_number_integer() && *pooling == kRankPooling;
}

// By index; "" for labels without a name.
std::vector<std::string> read_labels(const ModelFiles& files, size_t count) {
  std::vector<std::string> labels(count);
  const auto take = [&](size_t place, const Json& name) {
    if (place < count && name.is_string()) labels[place] = name.get<std::string>();
  };
  if (files.kind == ModelFiles::Kind::gguf) {
    const auto found = files.config->find(files.architecture + ".classifier.output_labels");
    if (found != files.config->end() && found->is_array())
      for (size_t i = 0; i < found->size(); ++i) take(i, (*found)[i]);
    return labels;
  }
  const auto found = files.config->find("id2label");
  if (found != files.config->end() && found->is_object())
    for (size_t i = 0; i < count; ++i)
      if (const auto one = found->find(std::to_string(i)); one != found->end()) take(i, *one);
  return labels;
}

// y = W x + b
std::vector<double> linear_rows(std::span<const float> weight, std::span<const float> bias, std::span<const double> x) {
  std::vector<double> y(weight.size() / x.size());
  for (size_t row = 0; row < y.size(); ++row) {
    double sum = bias.empty() ? 0 : static_cast<double>(bias[row]);
    for (size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(weight[row * x.size() + i]) * x[i];
    y[row] = sum;
  }
  return y;
}

// y = (x - mean) / sqrt(variance + eps) * weight + bias
void layer_norm_in_place(std::vector<double>& x, std::span<const float> weight, std::span<const float> bias,
                         double eps) {
  const auto n = static_cast<double>(x.size());
  double sum = 0, squares = 0;
  for (const double value : x) sum += value;
  for (const double value : x) squares += (value - sum / n) * (value - sum / n);
  const double scale = 1 / std::sqrt(squares / n + eps);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] =
        (x[i] - sum / n) * scale * static_cast<double>(weight[i]) + (bias.empty() ? 0 : static_cast<double>(bias[i]));
}

// ModernBERT's classifier_pooling. GGUF files do not state it; llama.cpp takes the mean.
Result<RankingHead::Row> read_row(const ModelFiles& files) {
  if (files.kind == ModelFiles::Kind::gguf) return RankingHead::Row::mean;
  ConfigReader config(*files.config, files.path + "/config.json");
  const std::string row = config.text_or("classifier_pooling", "cls");
  const std::string activation = config.text_or("classifier_activation", "gelu");
  MILLRACE_TRY_VOID(config.status());
  if (activation != "gelu" || (row != "cls" && row != "mean"))
    return Error::unsupported(
        fmt::format("{}: classifier_pooling '{}' with classifier_activation '{}'", config.source(), row, activation));
  return row == "mean" ? RankingHead::Row::mean : RankingHead::Row::first;
}

}  // namespace

Result<std::optional<RankingHead>> RankingHead::read(const ModelFiles& files, const ArchSpec& spec) {
  const Arch* arch = find_arch(files);
  if (!arch || !is_ranker(files)) return std::optional<RankingHead>();
  WeightLoader loader(files, *arch);
  const StoredTensor* out = loader.find(kOut);
  if (!out) return std::optional<RankingHead>();
  const int64_t count = out->tensor.rows();
  if (count < 1 || count > kMaxLabels || out->tensor.cols() != spec.width)
    return Error::corrupt(
        fmt::format("{}: tensor {} has {} rows of {}; a ranking head of this model needs 1 to {} of {}", files.path,
                    out->name, count, out->tensor.cols(), kMaxLabels, spec.width));
  RankingHead head;
  if (spec.encoder) head.row_ = Row::first;
  MILLRACE_TRY(head.out_, loader.vector(kOut, count * spec.width));
  MILLRACE_TRY(head.out_bias_, loader.optional_vector("cls.output.bias", count));
  MILLRACE_TRY(head.dense_, loader.optional_vector("cls.weight", spec.width * spec.width));
  MILLRACE_TRY(head.dense_bias_, loader.optional_vector("cls.bias", spec.width));
  MILLRACE_TRY(head.norm_, loader.optional_vector("cls.norm.weight", spec.width));
  MILLRACE_TRY(head.norm_bias_, loader.optional_vector("cls.norm.bias", spec.width));
  head.norm_eps_ = static_cast<double>(spec.norm_eps);
  if (!head.norm_.empty()) {
    MILLRACE_TRY(head.row_, read_row(files));
  }
  head.labels_ = read_labels(files, static_cast<size_t>(count));
  if (count == 1) {
    head.relevant_ = 0;
  } else if (const auto yes = std::ranges::find(head.labels_, "yes"); yes != head.labels_.end()) {
    head.relevant_ = static_cast<size_t>(yes - head.labels_.begin());
  }
  return std::optional<RankingHead>(std::move(head));
}

Result<RankingHead> RankingHead::of_tokens(const ModelFiles& files, const ArchSpec& spec, int32_t relevant,
                                           int32_t other) {
  const Arch* arch = find_arch(files);
  if (!arch || spec.encoder)
    return Error::unsupported(fmt::format("{}: {} predicts no tokens, whose logits could be compared", files.path,
                                          spec.encoder ? "an encoder" : "an unknown architecture"));
  if (spec.final_softcap > 0.0f || spec.logit_scale != 1.0f)
    return Error::unsupported(fmt::format("{}: logits with a soft-cap or a scale", files.path));
  WeightLoader loader(files, *arch);
  const char* const name = loader.find("output.weight") ? "output.weight" : "token_embd.weight";
  RankingHead head;
  for (const int32_t token : {relevant, other}) {
    if (token < 0 || token >= spec.vocab)
      return Error::unsupported(
          fmt::format("{}: token {} has no row in the output head, which has {}", files.path, token, spec.vocab));
    MILLRACE_TRY(const Weight row, loader.rows_of(name, spec.vocab, token, 1, spec.width));
    if (row.parts || row.codebook || row.column_format || !row.scales.values.empty())
      return Error::unsupported(
          fmt::format("{}: single rows of {}, which has weight parts or scales", files.path, name));
    std::vector<float> values(static_cast<size_t>(spec.width));
    row.format->decode(row.data, values.data(), spec.width);
    head.out_.insert(head.out_.end(), values.begin(), values.end());
  }
  if (const StoredTensor* bias = loader.find("output.bias"); bias) {
    MILLRACE_TRY(const auto all, loader.vector("output.bias", spec.vocab));
    for (const int32_t token : {relevant, other}) head.out_bias_.push_back(all[static_cast<size_t>(token)]);
  }
  head.labels_.resize(2);
  head.relevant_ = 0;
  return head;
}

double RankingHead::score(std::span<const float> hidden, bool activated) const {
  std::vector<double> x(hidden.begin(), hidden.end());
  if (!dense_.empty()) {
    x = linear_rows(dense_, dense_bias_, x);
    for (double& value : x) value = norm_.empty() ? std::tanh(value) : 0.5 * value * (1 + std::erf(value * M_SQRT1_2));
  }
  if (!norm_.empty()) layer_norm_in_place(x, norm_, norm_bias_, norm_eps_);
  const std::vector<double> logits = linear_rows(out_, out_bias_, x);
  if (logits.size() == 1) return activated ? 1 / (1 + std::exp(-logits[0])) : logits[0];
  const double most = std::ranges::max(logits);
  double sum = 0;
  for (double logit : logits) sum += std::exp(logit - most);
  return std::exp(logits[*relevant_] - most) / sum;
}

}  // namespace millrace
