#include "server/generation/engine_choices.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "models/neurons/neuron_mlp.h"
#include "models/router.h"
#include "run/language_model.h"
#include "run/plan/kv_places.h"
#include "server/models/served_model.h"
#include "techniques/lossy_choices.h"

namespace millrace {
namespace {

// Where a file that an option names is, is the server's own business.
std::string without_folders(std::string text) {
  for (const std::string_view option : {"levels=", "model=", "link_embeddings=", "file="}) {
    const size_t at = text.find(option);
    if (at == std::string::npos) continue;
    const size_t begin = at + option.size();
    size_t end = std::min(text.find(',', begin), text.size());
    while (end > begin + 1 && text[end - 1] == '/') text.erase(--end, 1);
    const size_t slash = text.rfind('/', end - 1);
    if (slash != std::string::npos && slash >= begin) text.erase(begin, slash + 1 - begin);
  }
  return text;
}

// Whether a choice of the engine applies to this request.
bool applies(const LossyChoice& choice, const Request& request) {
  if (choice.family == "evictor") return request.evictor.empty();
  if (choice.family == "exit") return request.exit.empty();
  if (choice.family == "context") return !request.documents.empty() && request.document_context.empty();
  // A greedy row has one token, which every rule accepts; a beam search drafts nothing.
  if (choice.family == "acceptance") return request.sampling.temperature > 0 && request.beams == 1;
  return true;
}

}  // namespace

Json engine_choices(const EngineOptions& options, const Request& request, std::string_view router,
                    std::string_view weights) {
  LoadOptions load;
  load.router = router;
  load.weights = weights;
  Json out = Json::object();
  for (const LossyChoice& choice : lossy_choices(load, options)) {
    if (!applies(choice, request)) continue;
    const std::string family(choice.family), text = without_folders(choice.text);
    out[family] = out.contains(family) ? out[family].get<std::string>() + "; " + text : text;
  }
  if (options.kv_store.empty()) return out;
  if (const auto store = choose_store(options.kv_store); store.ok() && fetched_fraction(*store) < 1)
    out["store"] = "ssd:fetch=" + store->options.text("fetch");
  return out;
}

std::string_view router_of(const ServedModel& served) {
  const Router* router = served.model->parts().model->spec().moe.router;
  return router ? router->name : "topk";
}

std::string lossy_weights_of(const ServedModel& served) {
  const WeightSource* const source = served.model->parts().model->source();
  const NeuronMlp* const neurons = source ? source->neurons() : nullptr;
  if (neurons) return neurons->choice();
  return source && !source->policy().lossy.empty() ? source->policy().lossy : "resident";
}

Json reading_choices(const ServedModel& served) {
  Request read;
  read.evictor = read.exit = read.document_context = "none";  // as prompt_reads.cc submits them
  Json out = engine_choices(served.engine_options, read, router_of(served), lossy_weights_of(served));
  out.erase("acceptance");  // nothing is drafted
  return out;
}

}  // namespace millrace
