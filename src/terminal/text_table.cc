#include "terminal/text_table.h"

#include <algorithm>

#include "terminal/display_width.h"

namespace millrace {
namespace {

constexpr size_t kNarrowestColumn = 16;  // columns of a column that wraps

std::string padded(const std::string& text, size_t width, bool left) {
  const size_t own = display_width(text);
  const std::string space(width > own ? width - own : 0, ' ');
  return left ? text + space : space + text;
}

}  // namespace

std::string drop_order(const std::vector<TableColumn>& columns) {
  std::vector<const TableColumn*> dropped;
  for (const TableColumn& column : columns)
    if (column.drops > 0) dropped.push_back(&column);
  std::ranges::stable_sort(dropped, {}, &TableColumn::drops);
  std::string names;
  for (const TableColumn* column : dropped) names += (names.empty() ? "" : "; ") + column->name;
  return names;
}

TextTable::TextTable(TableLook look, std::vector<TableColumn> columns) : look_(look), columns_(std::move(columns)) {}

size_t TextTable::total_width() const {
  const size_t between = look_ == TableLook::markdown ? 3 : 2;
  size_t total = look_ == TableLook::markdown ? 1 : 0;
  for (const size_t at : shown_) total += widths_[at] + between;
  return look_ == TableLook::plain && !shown_.empty() ? total - between : total;
}

// Makes the columns that wrap as narrow as the room demands. Returns true if the table then fits.
bool TextTable::narrow_text_columns(size_t room) {
  for (const size_t at : shown_) {
    const size_t total = total_width();
    if (total <= room) break;
    if (!columns_[at].wraps) continue;
    const size_t least = std::min(widths_[at], kNarrowestColumn);
    widths_[at] = std::max(least, widths_[at] - std::min(widths_[at], total - room));
  }
  return total_width() <= room;
}

void TextTable::fit(size_t room) {
  shown_.clear();
  dropped_.clear();
  for (size_t i = 0; i < columns_.size(); ++i) shown_.push_back(i);
  const std::vector<size_t> natural = widths_;
  while (room > 0 && !narrow_text_columns(room)) {
    auto next = shown_.end();
    for (auto at = shown_.begin(); at != shown_.end(); ++at)
      if (columns_[*at].drops > 0 && (next == shown_.end() || columns_[*at].drops < columns_[*next].drops)) next = at;
    if (next == shown_.end()) return;
    dropped_.push_back(*next);
    shown_.erase(next);
    widths_ = natural;
  }
}

std::string TextTable::heading() const {
  Row names;
  for (const TableColumn& column : columns_) names.push_back(column.name);
  std::string out = line(names);
  if (look_ == TableLook::plain) return out;
  for (const size_t at : shown_) out += "|" + std::string(widths_[at] + 1, '-') + (columns_[at].left ? "-" : ":");
  return out + "|\n";
}

std::string TextTable::line(const Row& row) const {
  std::vector<std::vector<std::string>> cells;
  size_t lines = 1;
  for (const size_t at : shown_) {
    const bool broken = columns_[at].wraps && display_width(row[at]) > widths_[at];
    cells.push_back(broken ? wrapped_lines(row[at], widths_[at]) : std::vector{row[at]});
    lines = std::max(lines, cells.back().size());
  }
  std::string out;
  for (size_t l = 0; l < lines; ++l) {
    std::string one;
    for (size_t i = 0; i < shown_.size(); ++i) {
      const std::string text = l < cells[i].size() ? cells[i][l] : "";
      const std::string cell = padded(text, widths_[shown_[i]], columns_[shown_[i]].left);
      one += look_ == TableLook::markdown ? "| " + cell + " " : (i > 0 ? "  " : "") + cell;
    }
    if (look_ == TableLook::markdown) one += "|";
    while (one.ends_with(' ')) one.pop_back();
    out += one + "\n";
  }
  return out;
}

std::string TextTable::dropped_text(const TableRoom& room) const {
  if (dropped_.empty()) return "";
  std::string names;
  for (const size_t at : dropped_) names += (names.empty() ? "" : "; ") + columns_[at].name;
  std::string out;
  const std::string text =
      "Not shown in " + std::to_string(room.columns) + " columns: " + names + "; " + room.more + " shows all.";
  for (const std::string& one : wrapped_lines(text, room.columns)) out += one + "\n";
  return out;
}

std::string TextTable::head(const TableRoom& room) {
  widths_.clear();
  for (const TableColumn& column : columns_) widths_.push_back(std::max(column.width, display_width(column.name)));
  fit(room.columns);
  return heading();
}

std::string TextTable::text(const TableRoom& room) {
  widths_.clear();
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths_.push_back(std::max({columns_[i].width, display_width(columns_[i].name), size_t{1}}));
    for (const Row& row : rows_) widths_[i] = std::max(widths_[i], display_width(row[i]));
  }
  fit(room.columns);
  std::string out = heading();
  for (const Row& row : rows_) out += line(row);
  return out + dropped_text(room);
}

}  // namespace millrace
