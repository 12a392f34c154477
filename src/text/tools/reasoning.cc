#include "text/tools/reasoning.h"

namespace millrace {

namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

Json literal(std::string_view text) { return {{"type", "const_string"}, {"value", text}}; }

}  // namespace

std::span<const ReasoningMarks> reasoning_marks() {
  static constexpr ReasoningMarks all[] = {{"<think>", "</think>"},
                                           {"<|START_THINKING|>", "<|END_THINKING|>"},  // Command R7B and A
                                           {"[THINK]", "[/THINK]"},                     // Magistral, Ministral 3
                                           {"<seed:think>", "</seed:think>"},           // Seed-OSS
                                           {"<|inner_prefix|>", "<|inner_suffix|>"},    // Apertus
                                           {"<thinking>", "</thinking>"}};
  return all;
}

const ReasoningMarks* reasoning_marks_of(std::string_view chat_template) {
  for (const ReasoningMarks& marks : reasoning_marks())
    if (chat_template.find(marks.open) != std::string_view::npos ||
        chat_template.find(marks.close) != std::string_view::npos)
      return &marks;
  return nullptr;
}

ReasoningPlace reasoning_place(std::string_view prompt, const ReasoningMarks& marks) {
  while (!prompt.empty() && is_space(prompt.back())) prompt.remove_suffix(1);
  if (prompt.ends_with(marks.open)) return ReasoningPlace::inside;
  return prompt.ends_with(marks.close) ? ReasoningPlace::behind : ReasoningPlace::begin;
}

void ReasoningSplitter::take_reasoning(char c, AnswerPieces& out) {
  if (is_space(c)) {
    space_ += c;
    return;
  }
  if (some_) add_piece(out, Kind::reasoning, space_);
  space_.clear();
  some_ = true;
  add_piece(out, Kind::reasoning, std::string_view(&c, 1));
}

std::string ReasoningSplitter::push(std::string_view text, AnswerPieces& out) {
  std::string rest;
  for (char c : text) {
    if (place_ == ReasoningPlace::behind) {
      if (lead_ && is_space(c)) continue;
      lead_ = false;
      rest += c;
      continue;
    }
    held_ += c;
    if (place_ == ReasoningPlace::begin) {
      const size_t begin = held_.find_first_not_of(" \n\r\t");
      if (begin == std::string::npos) continue;
      const auto said = std::string_view(held_).substr(begin);
      if (!open_.starts_with(said)) {
        rest += held_;
        held_.clear();
        place_ = ReasoningPlace::behind;
      } else if (said.size() == open_.size()) {
        held_.clear();
        place_ = ReasoningPlace::inside;
      }
      continue;
    }
    while (!held_.empty() && !close_.starts_with(held_)) {
      take_reasoning(held_.front(), out);
      held_.erase(0, 1);
    }
    if (held_.size() == close_.size()) {
      held_.clear();
      space_.clear();
      place_ = ReasoningPlace::behind;
      lead_ = true;
    }
  }
  return rest;
}

std::string ReasoningSplitter::finish(AnswerPieces& out) {
  std::string rest;
  if (place_ == ReasoningPlace::begin) rest = std::move(held_);
  if (place_ == ReasoningPlace::inside)
    for (char c : held_) take_reasoning(c, out);
  held_.clear();
  space_.clear();
  place_ = ReasoningPlace::behind;
  return rest;
}

Json behind_reasoning(Json structure, const ReasoningMarks& marks, ReasoningPlace place) {
  if (place == ReasoningPlace::behind) return structure;
  const Json space = {{"type", "regex"}, {"pattern", "[ \\n]{0,4}"}};
  const Json until = {{"type", "text_until"}, {"end", marks.close}};
  if (place == ReasoningPlace::inside)
    return {{"type", "sequence"}, {"elements", {until, space, std::move(structure)}}};
  Json thinking = {{"type", "sequence"}, {"elements", {literal(marks.open), until, space}}};
  return {{"type", "sequence"},
          {"elements", {Json{{"type", "optional"}, {"content", std::move(thinking)}}, std::move(structure)}}};
}

bool is_marker(std::string_view text) {
  for (const ReasoningMarks& marks : reasoning_marks())
    if (text == marks.open || text == marks.close) return true;
  for (const ToolDialect* dialect : tool_dialects().members())
    for (const char* marker : dialect->markers)
      if (text == marker) return true;
  return false;
}

}  // namespace millrace
