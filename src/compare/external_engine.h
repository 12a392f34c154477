// ExternalEngine: an adapter for another engine's programs, so that a comparison has that engine's figures next to
// millrace's. It starts the programs as their users do, and reads their output. Stateless and thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "base/result.h"

namespace millrace {

// Arguments that all programs of an engine take.
struct ExternalModel {
  std::string path;  // path of the model file
  int threads = 1;
};

struct ExternalSpeed {
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
  bool after_prompt = true;  // false: decoded from an empty context
};

struct ExternalQuestion {
  std::string messages;  // messages of a conversation, as JSON; "": the prompt is `text`
  std::string text;
  int64_t max_tokens = 0;
  std::vector<std::string> stop;
};

// The engine's server, which runs until this object is destroyed.
class ExternalServer {
 public:
  virtual ~ExternalServer() = default;
  // Returns a greedily generated text. Errors: user (the server reports an error), corrupt (the server's reply),
  // cancelled.
  virtual Result<std::string> answer(const ExternalQuestion& question, const std::function<bool()>& wanted) = 0;
};

class ExternalEngine {
 public:
  using Wanted = std::function<bool()>;  // returns false to stop with the error "cancelled"

  virtual ~ExternalEngine() = default;
  // Measures one run: a prompt of `prompt` tokens, and `generate` tokens after it. Errors: user (the program does not
  // exist or fails), corrupt (the program's output).
  virtual Result<ExternalSpeed> speed(int64_t prompt, int64_t generate, const Wanted& wanted) const = 0;
  // Returns the mean negative log-likelihood, in nats, of the scored tokens of each window, as in `millrace
  // perplexity`.
  virtual Result<std::vector<double>> window_nll(const std::string& text, int64_t window, int64_t windows,
                                                 const Wanted& wanted) const = 0;
  // Starts a server for streams of up to `longest` tokens, and waits until it accepts requests. Errors: as in speed().
  virtual Result<std::unique_ptr<ExternalServer>> serve(int64_t longest, const Wanted& wanted) const = 0;
};

// `given`: NAME[:key=value,...]. Errors (user): unknown name or option, no model file.
Result<std::shared_ptr<const ExternalEngine>> make_external_engine(const std::string& given,
                                                                   const ExternalModel& model);

using ExternalEngineFactory = Result<std::shared_ptr<const ExternalEngine>> (*)(const OptionValues& options,
                                                                                const ExternalModel& model);
const Registry<ExternalEngineFactory>& external_engines();

}  // namespace millrace
