#include "server/api/use_field.h"

#include <fmt/format.h>

#include "exit/exit_gate.h"
#include "sampling/schema.h"
#include "techniques/technique_use.h"

namespace millrace {
namespace {

constexpr const char* kName = "millrace.use";
constexpr size_t kMaxUses = 64;
constexpr size_t kMaxDocuments = 1024;

// A field has set the option to another value than the choice.
std::optional<ApiError> contradiction(const Json& body, const SamplingOptions& defaults,
                                      const SamplingOptions& own_fields, const SamplingOptions& now,
                                      const TechniqueUse& use) {
  for (const std::string& name : sampling_options_of(use)) {
    const std::string was = sampling_option_text(own_fields, name);
    const bool set = body.contains(name) || was != sampling_option_text(defaults, name);
    if (set && was != sampling_option_text(now, name))
      return ApiError::bad(kName,
                           fmt::format("{}: the request's own {} is {}; give only one of them", use.text(), name, was));
  }
  return std::nullopt;
}

Field retrieve_field() {
  Field index{"index", kJsonText, "", "name of an index that the server was started with (--index NAME=FOLDER)"};
  index.required = true;
  Field k{"k", kJsonInteger, "4", "number of passages"};
  k.min = 1;
  k.max = 100;
  Field mode{"mode", kJsonText, "hybrid", "hybrid: by vectors and words; vector: by meaning; text: by words"};
  mode.choices = {"hybrid", "vector", "text"};
  Field out = object_field("retrieve",
                           "passages of an index that match the prompt, or the user's last message, become documents "
                           "before it; the response's millrace.sources names them (docs/retrieval.md)",
                           {index, k, mode});
  out.closed = true;
  return out;
}

std::optional<AskedRetrieval> asked_retrieval(const Json& own) {
  const auto given = own.find("retrieve");
  if (given == own.end()) return std::nullopt;
  return AskedRetrieval{.index = (*given)["index"].get<std::string>(),
                        .k = given->value("k", int64_t{4}),
                        .mode = given->value("mode", std::string("hybrid"))};
}

}  // namespace

Field use_field() {
  Field use{
      "use", kJsonTexts, "[]",
      fmt::format("techniques of this request, FAMILY=NAME:key=value,... of these families: {}; the response's "
                  "millrace.applied reports what they changed, and millrace.engine what the engine was started with "
                  "(docs/techniques.md)",
                  families_in(kInRequest))};
  use.most = kMaxUses;
  Field documents{"documents", kJsonTexts, "[]",
                  "texts that come before the prompt, or first in the last message of the user, each with its own "
                  "tokens; millrace.use chooses how they are computed, context=kvlink (docs/document-contexts.md)"};
  documents.most = kMaxDocuments;
  Field blocks{"blocks", kJsonTexts, "[]", "the same as documents"};
  blocks.most = kMaxDocuments;
  Field own = object_field("millrace", "extensions of this server; unknown keys are refused",
                           {use, documents, blocks, retrieve_field()});
  own.closed = true;
  return own;
}

Field no_use_field() {
  Field own = unsupported_field("millrace", [](const Json& value) { return value.is_object() && value.empty(); });
  own.help = "leave it out; it applies to requests that generate text";
  return own;
}

std::optional<ApiError> apply_use(const Json& body, const SamplingOptions& defaults, GenerationRequest& params) {
  const auto own = body.find("millrace");
  if (own == body.end()) return std::nullopt;
  const auto documents = own->find("documents"), blocks = own->find("blocks");
  if (documents != own->end() && blocks != own->end())
    return ApiError::bad("millrace.blocks", "is another name of millrace.documents; give only one of them");
  if (const auto& given = documents != own->end() ? documents : blocks; given != own->end())
    params.documents = given->get<std::vector<std::string>>();
  params.retrieval = asked_retrieval(*own);
  if (!own->contains("use")) return std::nullopt;
  auto uses = parse_uses((*own)["use"].get<std::vector<std::string>>(), kInRequest);
  if (!uses.ok()) return ApiError::bad(kName, uses.error().message);
  const SamplingOptions own_fields = params.request.sampling;
  auto applied = apply_uses(*uses, params.request.sampling);
  if (!applied.ok()) return ApiError::bad(kName, applied.error().message);
  for (const TechniqueUse& use : *uses)
    if (auto wrong = contradiction(body, defaults, own_fields, params.request.sampling, use)) return wrong;
  EngineOptions chosen;
  auto of_stream = apply_uses(*uses, chosen);
  if (!of_stream.ok()) return ApiError::bad(kName, of_stream.error().message);
  params.request.evictor = chosen.evictor;
  params.request.exit = chosen_exit(chosen.kernels);
  params.request.document_context = chosen.document_context;
  for (AppliedTechnique& one : *of_stream)
    if (one.family != "context" || !params.documents.empty() || params.retrieval) applied->push_back(std::move(one));
  params.prompt_passes = prompt_passes_of(*uses);
  for (const TechniqueUse& use : *uses) {
    if (use.family != "prompt" || use.name != kNoTechnique) continue;
    params.no_prompt_passes = true;
    applied->push_back({use.family, use.name, Json::object(), "the prompt stays whole"});
  }
  if (!applied->empty()) params.applied = applied_json(*applied);
  return std::nullopt;
}

}  // namespace millrace
