// Generation programs: whatever the reader and the check accept runs to its end within its limits.
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <string_view>

#include "base/json_text.h"
#include "program/program_reader.h"
#include "program/run.h"

namespace {

using namespace millrace;

// Answers with numbered lines, so that forks of lines have branches.
class Lines final : public Generator {
 public:
  void begin(const GenerationAsk&, Done done) override { open_.push_back(std::move(done)); }
  void cancel_all() override { open_.clear(); }
  void finish() {
    while (!open_.empty()) {
      const Done done = std::move(open_.front());
      open_.pop_front();
      GenerationOutcome out;
      out.text = "1. one\n2. {two}\nThe answer is 3.";
      out.logprobs = {-0.5F, -1};
      done(std::move(out));
    }
  }

 private:
  std::deque<Done> open_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ProgramLimits limits{.branches = 16, .requests = 64, .text_bytes = 1 << 14, .copied_bytes = 1 << 18};
  const auto json = parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  auto program = read_program(json, limits);
  if (!program.ok()) return 0;
  const auto expected = check_program(*program, limits);
  Lines generator;
  bool ended = false;
  ProgramRun::Options options;
  options.limits = limits;
  int64_t requests = 0;
  auto run = ProgramRun::start(std::move(*program), {}, generator, options, [&](Result<ProgramResult> result) {
    ended = true;
    if (result.ok()) requests = result->usage.requests;
  });
  if (run.ok() != expected.ok()) std::abort();
  if (!run.ok()) return 0;
  generator.finish();
  if (!ended || requests > expected->requests) std::abort();
  return 0;
}
