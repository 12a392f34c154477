// TaskPrefixes: texts that an embedding model expects before others, by task ("query: ", "passage: ", an instruction).
// Sentence-transformers folders state them in config_sentence_transformers.json:
//
//   {"prompts": {"query": "query: ", "document": "passage: "}, "default_prompt_name": null}
//
// Immutable.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

class TaskPrefixes {
 public:
  // Empty for GGUF files and for folders without that file. Errors: corrupt (the file; a default that is not there).
  static Result<TaskPrefixes> read(const ModelFiles& files);

  // The prefix of that task, or without a name the default one; "" if there is no default. Errors: user (an unknown
  // task; the message lists the known ones).
  Result<std::string> find(const std::optional<std::string>& task) const;

 private:
  std::vector<std::pair<std::string, std::string>> prefixes_;
  std::string default_;  // a task; "": none
};

}  // namespace millrace
