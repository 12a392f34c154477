// millrace offload-train: the neuron file of a model, for weights=llm_in_flash and weights=powerinfer.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/memory_accounts.h"
#include "base/ordered_json.h"
#include "command.h"
#include "compress/neurons/neuron_fit.h"
#include "input.h"
#include "model_flags.h"

namespace millrace {
namespace {

constexpr const char* kOffloadTrainExamples = R"(Examples:
  millrace offload-train -m relu.gguf -f texts.txt -o relu.neurons
  millrace run -m relu.gguf --use weights=llm_in_flash:file=relu.neurons,memory=200M -p "Once upon a time"
  millrace run -m relu.gguf --use weights=powerinfer:file=relu.neurons,predictor=file -p "Once upon a time"
  millrace offload-train -m relu.gguf -f texts.txt -o relu.neurons --rank 0     without predictors
The model needs MLPs with ReLU: millrace compress --pass relufy makes such a model. The text should be like the texts
that the model will read; 4096 tokens are enough.)";

struct OffloadTrainFlags {
  ModelFlags model;
  std::string file, out;
  NeuronFitOptions fit;
  int64_t tokens = 4096;
  bool json = false;
};

double mean_of_layers(const std::vector<NeuronFitLayer>& layers, double NeuronFitLayer::*figure) {
  double sum = 0;
  for (const NeuronFitLayer& layer : layers) sum += layer.*figure;
  return sum / static_cast<double>(layers.size());
}

nlohmann::ordered_json fit_json(const OffloadTrainFlags& flags, const NeuronFit& fit, int64_t bytes) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const NeuronFitLayer& layer : fit.layers)
    layers.push_back({{"active", layer.active},
                      {"predicted", layer.predicted},
                      {"recall", layer.recall},
                      {"precision", layer.precision}});
  return {{"file", flags.out},      {"bytes", bytes},   {"tokens", fit.tokens},
          {"rank", flags.fit.rank}, {"loss", fit.loss}, {"predicted_loss", fit.predicted_loss},
          {"layers", layers}};
}

void print_fit(const OffloadTrainFlags& flags, const NeuronFit& fit, int64_t bytes) {
  const bool predicts = flags.fit.rank > 0;
  fmt::print("{:>5} {:>8} {:>10} {:>8} {:>10}\n", "layer", "active", "predicted", "recall", "precision");
  const auto line = [&](const std::string& name, double active, double predicted, double recall, double precision) {
    if (!predicts) return fmt::print("{:>5} {:>6.1f} %\n", name, 100 * active);
    fmt::print("{:>5} {:>6.1f} % {:>8.1f} % {:>6.1f} % {:>8.1f} %\n", name, 100 * active, 100 * predicted, 100 * recall,
               100 * precision);
  };
  for (size_t l = 0; l < fit.layers.size(); ++l) {
    const NeuronFitLayer& layer = fit.layers[l];
    line(std::to_string(l), layer.active, layer.predicted, layer.recall, layer.precision);
  }
  line("all", mean_of_layers(fit.layers, &NeuronFitLayer::active),
       mean_of_layers(fit.layers, &NeuronFitLayer::predicted), mean_of_layers(fit.layers, &NeuronFitLayer::recall),
       mean_of_layers(fit.layers, &NeuronFitLayer::precision));
  fmt::print("perplexity of the text's last quarter: {:.4f}", std::exp(fit.loss));
  if (predicts) fmt::print(", with predicted neurons {:.4f}", std::exp(fit.predicted_loss));
  fmt::print("\n{}: {}, from {} tokens\nuse it:   --use weights=llm_in_flash:file={}\n", flags.out, format_bytes(bytes),
             fit.tokens, flags.out);
}

Result<int> run_offload_train(OffloadTrainFlags flags) {
  MILLRACE_TRY(const auto loaded, flags.model.load_with_text(flags.file, flags.fit.context, flags.tokens));
  const auto& [model, tokens] = loaded;
  flags.fit.threads = flags.model.threads;
  MILLRACE_TRY(const NeuronFit fit, fit_neurons(model, tokens, flags.fit));
  const LanguageModel::Parts& parts = model->parts();
  MILLRACE_TRY_VOID(write_neuron_file(flags.out, *parts.files, parts.model->spec(), fit.profiles, fit.tokens));
  std::error_code ignored;
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(flags.out, ignored));
  if (flags.json)
    print_json_line(fit_json(flags, fit, bytes));
  else
    print_fit(flags, fit, bytes);
  return 0;
}

}  // namespace

void add_offload_train_command(CLI::App& app) {
  auto flags = std::make_shared<OffloadTrainFlags>();
  CLI::App* command = add_command(app, "offload-train",
                                  "Train the predictors of a model's neurons, and store its MLPs by "
                                  "neuron",
                                  kOffloadTrainExamples, [=] { return run_offload_train(*flags); });
  flags->model.add_with_text_to(command, &flags->file);
  command->add_option("-o,--output", flags->out, "File to write")->required();
  command->add_option("--rank", flags->fit.rank, "Rank of the predictors; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, kMaxPredictorRank));
  command->add_option("--recall", flags->fit.recall, "Share of a neuron's active tokens that its threshold keeps")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 1.0));
  command->add_option("--damping", flags->fit.damping, "Ridge of the regression, relative to the inputs' mean square")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, 1e3));
  command->add_option("-c,--context", flags->fit.context, "Tokens of a window of the text")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20));
  command->add_option("--tokens", flags->tokens, "Tokens of the text to use, at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{128}, int64_t{1} << 20));
  command->add_flag("--json", flags->json, "Print one JSON object");
}

}  // namespace millrace
