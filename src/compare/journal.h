// CompareJournal: the values that a comparison has measured, in a file from which a later comparison continues. Each
// line is a JSON object, written as soon as the value is known. An incomplete last line is dropped. Not thread-safe.
//
//   {"millrace_compare": 1, "facts": "millrace 0.1.0, model.gguf, 5475584 parameters ..."}
//   {"suite": "lab:copy", "items": "3f2a...", "config": "kv_format=q8_0", "item": 7, "values": [1.0]}
#pragma once

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct JournalKey {
  std::string suite;
  std::string items;   // SuitePlan::identity
  std::string config;  // CompareSpec::text
  int64_t item = 0;

  auto operator<=>(const JournalKey&) const = default;
};

class CompareJournal {
 public:
  CompareJournal() = default;  // keeps values in memory only
  CompareJournal(CompareJournal&&) = default;

  // Opens the journal: reads the file, if it exists, and appends new values to it. A file of another kind is not
  // changed. `facts`: a description of everything that values depend on in addition to their key. Errors: user (the
  // file cannot be opened or written, or has other facts), corrupt (a line).
  static Result<CompareJournal> open(const std::string& path, const std::string& facts);

  // Returns the values with this key; null: not measured yet.
  const std::vector<double>* find(const JournalKey& key) const;
  Result<void> add(const JournalKey& key, std::vector<double> values);
  int64_t read() const { return read_; }  // number of values found in the file

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  Result<void> read_file(const std::string& facts, std::string_view text, size_t& good);
  Error not_ours() const;
  Result<void> write_line(const std::string& line);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::map<JournalKey, std::vector<double>> values_;
  int64_t read_ = 0;
};

}  // namespace millrace
