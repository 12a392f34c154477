// Fuzzes server recordings: any bytes are a recording within bounds, or a one-line error. Every recording that can be
// read round-trips, and so does a request of every kind made from the same bytes.
#include "server/telemetry/recording.h"

#include <cstdint>
#include <cstdlib>

#include "base/enum_table.h"

namespace {

using namespace millrace;

std::string written(const Recording& recording) {
  std::string out = recording_head_line(recording.head) + "\n";
  for (const RecordedRequest& one : recording.requests) out += recording_line(one, recording.head.prompts, 0) + "\n";
  return out + recording_end_line(static_cast<int64_t>(recording.requests.size())) + "\n";
}

// With prompts nothing is hashed, so writing, reading and writing again gives the same text.
void check_round_trip(Recording recording) {
  recording.head.prompts = true;
  for (RecordedRequest& one : recording.requests)
    if (one.request.prompt.empty()) one.request.prompt = {0};
  const std::string first = written(recording);
  const auto read = parse_recording(first, "fuzz");
  if (!read.ok() || read->requests.size() != recording.requests.size() || written(*read) != first) std::abort();
}

// The bytes as texts in a request of each constraint kind, with each finish reason.
void check_every_kind(std::string_view bytes) {
  const std::string text(bytes.substr(0, 64));
  Recording recording;
  recording.head.model = text;
  for (Constraint::Kind kind : kAllOf<Constraint::Kind>) {
    RecordedRequest one{.id = text};
    one.request.prompt = {0};
    one.request.stop = {text};
    one.request.constraint = {kind, text, {text, "", text}, text};
    one.request.thinking = {static_cast<int64_t>(bytes.size()), text, text, bytes.empty()};
    one.request.adapters = {{text, 0.5}};
    one.request.bad_words = {{1, 2}, {}};
    one.request.stop_tokens = {3};
    one.request.beams = 2;
    one.request.early_stopping = kAllOf<EarlyStopping>[bytes.size() % kEnumerators<EarlyStopping>];
    for (FinishReason reason : kAllOf<FinishReason>)
      one.answers.push_back({.finish = reason, .ids = {static_cast<TokenId>(bytes.size())}});
    recording.requests.push_back(std::move(one));
  }
  check_round_trip(std::move(recording));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_every_kind(bytes);
  for (const bool whole : {true, false}) {
    const auto recording = parse_recording(bytes, "fuzz", whole);
    if (!recording.ok()) {
      const std::string& message = recording.error().message;
      if (message.empty() || message.find('\n') != std::string::npos) std::abort();
      continue;
    }
    double before = 0;
    for (const RecordedRequest& one : recording->requests) {
      if (one.arrival_seconds < before || one.prompt_tokens < 1 || one.request.n < 1 || one.request.max_tokens < -1 ||
          one.answers.empty())
        std::abort();
      before = one.arrival_seconds;
      for (const RecordedAnswer& answer : one.answers)
        if (answer.tokens < 0 || answer.digest.size() != 32) std::abort();
    }
    check_round_trip(*recording);
  }
  return 0;
}
