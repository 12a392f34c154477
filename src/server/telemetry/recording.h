// Recordings of a server's requests and answers, for replaying them and checking that the answers are the same. A file
// of JSON lines: version and settings, one line per prompt in the order in which their answers end, and the number of
// requests, which a truncated file lacks:
//
//   {"millrace_recording": 1, "model": ..., "instruction_set": ..., "kv_format": ..., "prompts": true}
//   {"arrival": 0.31, "id": ..., "prompt": [1, 9038], "sampling": {...}, "answers": [{"tokens": 17, "digest": ...}]}
//   ...
//   {"end": 2}
//
// The digest is XXH3-128 over an answer's token ids, little-endian 32-bit, without the end-of-generation token. Version
// 1 is frozen. Without prompts, a line has the prompt's length and a hash that only identifies equal prompts within the
// file.
#pragma once

#include <chrono>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/events.h"
#include "millrace/model.h"
#include "millrace/request.h"

namespace millrace {

struct RecordedAnswer {
  int64_t tokens = 0;
  std::string digest;
  FinishReason finish = FinishReason::none;
  std::vector<TokenId> ids;  // recorded only with prompts
};

struct RecordedRequest {
  double arrival_seconds = 0;  // since the recording began
  std::string id;              // X-Request-Id
  Request request;             // without the prompt if prompts are not recorded
  int64_t prompt_tokens = 0;
  std::string prompt_hash;  // recorded only without prompts
  std::vector<RecordedAnswer> answers;
};

struct RecordingHead {
  std::string model, instruction_set, kv_format;
  bool prompts = false;
};

struct Recording {
  RecordingHead head;
  std::vector<RecordedRequest> requests;  // sorted by arrival
};

std::string token_digest(const std::vector<TokenId>& tokens);

// The lines of a file, without line ends. `salt`: for the prompt hash if `prompts` is false.
std::string recording_head_line(const RecordingHead& head);
std::string recording_line(const RecordedRequest& request, bool prompts, uint64_t salt);
std::string recording_end_line(int64_t requests);

// Returns true if an event's token is part of the answer: the end-of-generation token is not.
inline bool counts_as_answer(const TokenEvent& event) {
  return event.token >= 0 && !(event.finish == FinishReason::stop && event.stopped_by.empty());
}

// Writes a recording. Thread-safe: write() is called by any connection's thread when a request's answers have ended.
class Recorder {
 public:
  // Errors: user (the file cannot be written).
  static Result<std::unique_ptr<Recorder>> create(const std::string& path, const RecordingHead& head);
  ~Recorder();  // writes the last line

  // Appends the request's line, whole or not at all. Errors: kStorageError; a later request may be written again.
  Result<void> write(RecordedRequest request, std::chrono::steady_clock::time_point arrival);

 private:
  Recorder() = default;
  Result<void> append(const std::string& line);  // with the mutex held

  std::mutex mutex_;
  std::string path_;
  std::ofstream file_;
  int64_t bytes_ = 0;  // bytes of the whole lines in file_
  bool prompts_ = false;
  int64_t written_ = 0;
  uint64_t salt_ = 0;  // salt of prompt hashes; not stored anywhere
  std::chrono::steady_clock::time_point began_;
};

// Errors: corrupt, with the line number; unsupported (a later version). `whole` false accepts a truncated file.
Result<Recording> parse_recording(std::string_view text, const std::string& name, bool whole = true);
Result<Recording> read_recording(const std::string& path, bool whole = true);

}  // namespace millrace
