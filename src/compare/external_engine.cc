#include "compare/external_engine.h"

#include "base/choose.h"
#include "compare/engines/factories.h"
#include "run/embedded_model.h"

namespace millrace {

// clang-format off
const Registry<ExternalEngineFactory>& external_engines() {
  using Type = OptionSpec::Type;
  static const Registry<ExternalEngineFactory> registry(FamilyFacts{}, {
      {{"engine", "llama_cpp", "llama.cpp and what is made of it: llama-bench, llama-perplexity and llama-server", "",
        {{"bin", Type::text, "", 0, 0, "folder of the programs"},
         {"args", Type::text, "", 0, 0, "arguments for each program, with spaces between them"}}}, make_llama_cpp},
  });
  return registry;
}
// clang-format on

Result<std::shared_ptr<const ExternalEngine>> make_external_engine(const std::string& given,
                                                                   const ExternalModel& model) {
  MILLRACE_TRY(const auto chosen, choose_member("engine", external_engines(), given));
  if (model.path.empty() || find_embedded_model(model.path))
    return Error::user(chosen.label + ": needs a model file; name it by -m, or by model= in the configuration");
  return chosen.member(chosen.options, model);
}

}  // namespace millrace
