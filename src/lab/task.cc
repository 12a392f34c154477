#include "lab/task.h"

#include <cmath>

namespace millrace {
namespace {

constexpr uint64_t kHeldOut = 10;  // one item of so many

// FNV-1a (Fowler, Noll, Vo), with a last mixing step so that the low bits depend on all of the text.
uint64_t text_hash(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  hash ^= hash >> 32;
  hash *= 0xD6E8FEB86659FD93u;
  return hash ^ hash >> 32;
}

// Words one space apart, without a full stop at the end.
std::string normalized(std::string_view text) {
  std::string out;
  for (char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!space) out += c;
    if (space && !out.empty() && out.back() != ' ') out += ' ';
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  if (!out.empty() && out.back() == '.') out.pop_back();
  return out;
}

}  // namespace

std::string LabItem::prompt() const {
  if (messages.size() == 1) return messages.front().content;
  std::string out;
  for (const LabMessage& message : messages) out += (out.empty() ? "" : "\n") + message.role + ": " + message.content;
  return out;
}

const LabTask* find_lab_task(std::string_view name) {
  for (const LabTask& task : lab_tasks())
    if (task.name == name) return &task;
  return nullptr;
}

std::string lab_task_names() {
  std::string out;
  for (const LabTask& task : lab_tasks()) out += (out.empty() ? "" : ", ") + std::string(task.name);
  return out;
}

Result<LabSplit> find_lab_split(std::string_view name) {
  if (name == "train") return LabSplit::train;
  if (name == "held_out") return LabSplit::held_out;
  return Error::user("split: must be train or held_out, not '" + std::string(name) + "'");
}

LabSplit split_of(const LabItem& item) {
  return text_hash(item.prompt()) % kHeldOut == 0 ? LabSplit::held_out : LabSplit::train;
}

LabItem make_lab_item(const LabTask& task, uint64_t seed, uint64_t index, LabSplit split, const LabLengths& lengths) {
  const uint64_t stream = text_hash(task.name) ^ index * 0x9E3779B97F4A7C15u;
  for (uint64_t attempt = 0;; ++attempt) {
    LabRandom random(seed, stream, attempt);
    const double span = static_cast<double>(lengths.most) / static_cast<double>(lengths.least);
    const auto length = static_cast<int64_t>(static_cast<double>(lengths.least) * std::pow(span, random.uniform()));
    LabItem item = task.make(random, length);
    item.task = task.name;
    if (split_of(item) == split) return item;
  }
}

double score_text(const LabItem& item, std::string_view given) {
  return normalized(given) == normalized(item.answer) ? 1 : 0;
}

double score_quote(const LabItem& item, std::string_view given) {
  const std::string answer = normalized(item.answer);
  return score_text(item, given) == 1 || normalized(given) == answer.substr(answer.rfind(' ') + 1) ? 1 : 0;
}

}  // namespace millrace
