// ExternalEngine: another engine's finished build, run as its user runs it, so that a comparison has its figures next
// to millrace's. An adapter starts the programs and reads their output. Thread-safe: members keep no state.
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

// Arguments of all programs of an engine.
struct ExternalModel {
  std::string path;  // a file
  int threads = 1;
};

struct ExternalSpeed {
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
  bool after_prompt = true;  // false: decoded from an empty context
};

struct ExternalQuestion {
  std::string messages;  // JSON, of a conversation; "": `text` is continued
  std::string text;
  int64_t max_tokens = 0;
  std::vector<std::string> stop;
};

// The engine's server, which runs until this object is gone.
class ExternalServer {
 public:
  virtual ~ExternalServer() = default;
  // Returns the text that it generates greedily. Errors: user (the server's), corrupt (its answer), cancelled.
  virtual Result<std::string> answer(const ExternalQuestion& question, const std::function<bool()>& wanted) = 0;
};

class ExternalEngine {
 public:
  using Wanted = std::function<bool()>;  // false: stop, with the error cancelled

  virtual ~ExternalEngine() = default;
  // Measures one run: a prompt of `prompt` tokens, and `generate` tokens after it. Errors: user (no such program, its
  // failure), corrupt (its output).
  virtual Result<ExternalSpeed> speed(int64_t prompt, int64_t generate, const Wanted& wanted) const = 0;
  // Mean negative log-likelihood, in nats, of the scored tokens of each window, as `millrace perplexity` has them.
  virtual Result<std::vector<double>> window_nll(const std::string& text, int64_t window, int64_t windows,
                                                 const Wanted& wanted) const = 0;
  // Starts a server for streams of up to `longest` tokens, and waits until it answers. Errors: as speed().
  virtual Result<std::unique_ptr<ExternalServer>> serve(int64_t longest, const Wanted& wanted) const = 0;
};

// `given`: NAME[:key=value,...]. Errors (user): unknown name or option, no model file.
Result<std::shared_ptr<const ExternalEngine>> make_external_engine(const std::string& given,
                                                                   const ExternalModel& model);

using ExternalEngineFactory = Result<std::shared_ptr<const ExternalEngine>> (*)(const OptionValues& options,
                                                                                const ExternalModel& model);
const Registry<ExternalEngineFactory>& external_engines();

}  // namespace millrace
