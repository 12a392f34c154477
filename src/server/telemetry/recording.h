// What a server answered, written down so that it can be asked again and must answer the same. A text file of JSON
// lines:
//
//   {"millrace_recording": 1, "model": ..., "instruction_set": ..., "kv_format": ..., "prompts": true}     version and
//   setting
//   {"arrival": 0.31, "id": ..., "prompt": [1, 9038], "sampling": {...}, "answers": [{"tokens": 17, "digest": ...}]}
//   one
//   ...                                                                             for each prompt, as its answers end
//   {"end": 2}                                                                      how many; a file that was cut lacks
//   it
//
// The digest is XXH3-128 over an answer's token ids, little-endian 32-bit, without the end-of-generation token. Version
// 1 is frozen. Without prompts, a line has their length and a hash that tells equal ones of this file, and no more.
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
  std::vector<TokenId> ids;  // beside prompts only
};

struct RecordedRequest {
  double arrival_seconds = 0;  // since the recording began
  std::string id;              // X-Request-Id
  Request request;             // without its prompt where prompts are not recorded
  int64_t prompt_tokens = 0;
  std::string prompt_hash;  // the same
  std::vector<RecordedAnswer> answers;
};

struct RecordingHead {
  std::string model, instruction_set, kv_format;
  bool prompts = false;
};

struct Recording {
  RecordingHead head;
  std::vector<RecordedRequest> requests;  // in order of arrival
};

std::string token_digest(const std::vector<TokenId>& tokens);

// The lines of a file, without their ends. `salt`: of the hash that stands for a prompt without `prompts`.
std::string recording_head_line(const RecordingHead& head);
std::string recording_line(const RecordedRequest& request, bool prompts, uint64_t salt);
std::string recording_end_line(int64_t requests);

// Whether an event's token belongs to the answer's text: the end-of-generation token that stops it does not.
inline bool counts_as_answer(const TokenEvent& event) {
  return event.token >= 0 && !(event.finish == FinishReason::stop && event.stopped_by.empty());
}

// Thread-safe: any connection's thread writes its line when its answers have ended.
class Recorder {
 public:
  // Errors: user (the file cannot be written).
  static Result<std::unique_ptr<Recorder>> create(const std::string& path, const RecordingHead& head);
  ~Recorder();  // writes the last line

  void write(RecordedRequest request, std::chrono::steady_clock::time_point arrival);

 private:
  Recorder() = default;
  std::mutex mutex_;
  std::ofstream file_;
  bool prompts_ = false;
  int64_t written_ = 0;
  uint64_t salt_ = 0;  // of prompt hashes; kept nowhere
  std::chrono::steady_clock::time_point began_;
};

// Errors: corrupt, naming the line; unsupported (a later version). `whole` false lets a file that lacks its end
// through.
Result<Recording> parse_recording(std::string_view text, const std::string& name, bool whole = true);
Result<Recording> read_recording(const std::string& path, bool whole = true);

}  // namespace millrace
