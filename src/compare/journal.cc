#include "compare/journal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/json_text.h"

namespace millrace {
namespace {

using JournalJson = nlohmann::ordered_json;

constexpr size_t kMaxJournalBytes = size_t{1} << 30;
constexpr std::string_view kHeadBegin = "{\"millrace_compare\":1,";

std::string json_line(const JournalJson& line) {
  return line.dump(-1, ' ', false, JournalJson::error_handler_t::replace);
}

Result<std::string> read_journal(std::FILE* file, const std::string& path) {
  std::string text;
  char chunk[65536];
  while (const size_t n = std::fread(chunk, 1, sizeof(chunk), file)) {
    text.append(chunk, n);
    if (text.size() > kMaxJournalBytes) return Error::user(fmt::format("{}: is larger than 1 GiB", path));
  }
  if (std::ferror(file)) return Error::corrupt(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  return text;
}

bool read_values(const JournalJson& line, JournalKey& key, std::vector<double>& values) {
  const auto text = [&](const char* name, std::string& to) {
    const auto found = line.find(name);
    if (found == line.end() || !found->is_string()) return false;
    to = found->get<std::string>();
    return true;
  };
  if (!line.is_object() || !text("suite", key.suite) || !text("items", key.items) || !text("config", key.config))
    return false;
  const auto item = line.find("item"), list = line.find("values");
  if (item == line.end() || !item->is_number_integer() || list == line.end() || !list->is_array()) return false;
  key.item = item->get<int64_t>();
  for (const JournalJson& value : *list) {
    if (!value.is_number() && !value.is_null()) return false;
    values.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  }
  return true;
}

}  // namespace

Error CompareJournal::not_ours() const {
  return Error::corrupt(fmt::format("{}: is not a file of `millrace compare --resume`", path_));
}

Result<void> CompareJournal::read_file(const std::string& facts, std::string_view text, size_t& good) {
  const std::string written = parse_json(json_line(facts)).get<std::string>();  // bytes that are no UTF-8 are replaced
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) {  // cut off, unless it is another file of one line
      if (number > 0 || text.starts_with(kHeadBegin)) return {};
      return not_ours();
    }
    const JournalJson line = parse_json(text.substr(begin, end - begin));
    begin = end + 1;
    if (++number == 1) {
      if (!line.is_object() || line.value("millrace_compare", JournalJson()) != 1 || !line.contains("facts"))
        return not_ours();
      if (line["facts"] != written)
        return Error::user(fmt::format("{}: belongs to another comparison ({}; this one is {}); use another file",
                                       path_, line["facts"].is_string() ? line["facts"].get<std::string>() : "?",
                                       facts));
      good = begin;
      continue;
    }
    JournalKey key;
    std::vector<double> values;
    if (!read_values(line, key, values))
      return Error::corrupt(fmt::format("{}: line {}: is not a measured value", path_, number));
    values_[key] = std::move(values);
    good = begin;
  }
  return {};
}

Result<CompareJournal> CompareJournal::open(const std::string& path, const std::string& facts) {
  CompareJournal journal;
  journal.path_ = path;
  journal.file_.reset(std::fopen(path.c_str(), "a+be"));
  if (!journal.file_) return Error::user(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  std::rewind(journal.file_.get());
  MILLRACE_TRY(const std::string text, read_journal(journal.file_.get(), path));
  size_t good = 0;
  MILLRACE_TRY_VOID(journal.read_file(facts, text, good));
  journal.read_ = std::ssize(journal.values_);
  if (good < text.size() && ::ftruncate(fileno(journal.file_.get()), static_cast<off_t>(good)) != 0)
    return Error::user(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  if (good == 0) {
    MILLRACE_TRY_VOID(journal.write_line(json_line({{"millrace_compare", 1}, {"facts", facts}})));
  }
  return journal;
}

const std::vector<double>* CompareJournal::find(const JournalKey& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Result<void> CompareJournal::add(const JournalKey& key, std::vector<double> values) {
  if (file_) {
    JournalJson list = JournalJson::array();
    for (const double value : values) list.push_back(std::isfinite(value) ? JournalJson(value) : JournalJson(nullptr));
    const JournalJson line = {
        {"suite", key.suite}, {"items", key.items}, {"config", key.config}, {"item", key.item}, {"values", list}};
    MILLRACE_TRY_VOID(write_line(json_line(line)));
  }
  values_[key] = std::move(values);
  return {};
}

Result<void> CompareJournal::write_line(const std::string& line) {
  const std::string whole = line + "\n";
  if (std::fwrite(whole.data(), 1, whole.size(), file_.get()) == whole.size() && std::fflush(file_.get()) == 0)
    return {};
  return Error::resource(fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)));
}

}  // namespace millrace
