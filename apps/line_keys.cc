#include "line_keys.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdio>
#include <cwchar>
#include <optional>

namespace millrace {
namespace {

constexpr wchar_t kControlG = 0x07, kBackspace = 0x08, kControlR = 0x12, kDelete = 0x7F;
constexpr size_t kMaxShownLines = 200;  // completions on the screen

std::wstring_view line_text(EditLine* editor) {
  const LineInfoW* line = el_wline(editor);
  return {line->buffer, static_cast<size_t>(line->lastchar - line->buffer)};
}

size_t line_cursor(EditLine* editor) {
  const LineInfoW* line = el_wline(editor);
  return static_cast<size_t>(line->cursor - line->buffer);
}

void replace_line(EditLine* editor, const std::wstring& text) {
  const size_t length = line_text(editor).size();
  el_cursor(editor, static_cast<int>(length - line_cursor(editor)));
  el_wdeletestr(editor, static_cast<int>(length));
  if (!text.empty()) el_winsertstr(editor, text.c_str());
}

std::string narrow(std::wstring_view text) {
  std::string out;
  std::mbstate_t state{};
  for (const wchar_t c : text) {
    char bytes[16];
    if (const size_t n = std::wcrtomb(bytes, c, &state); n != static_cast<size_t>(-1)) out.append(bytes, n);
  }
  return out;
}

std::string common_beginning(const std::vector<std::string>& words) {
  std::string out = words.front();
  for (const std::string& word : words)
    out.resize(
        static_cast<size_t>(std::mismatch(out.begin(), out.end(), word.begin(), word.end()).first - out.begin()));
  while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0) == 0x80) out.pop_back();  // no half character
  return out;
}

// The first entry from `from` on that contains the text.
std::optional<size_t> find_entry(const std::vector<std::wstring>& lines, const std::wstring& text, size_t from) {
  for (size_t i = from; !text.empty() && i < lines.size(); ++i)
    if (lines[i].find(text) != std::wstring::npos) return i;
  return std::nullopt;
}

}  // namespace

size_t rows_before(std::wstring_view text, size_t prompt_columns, size_t columns) {
  constexpr size_t kTab = 8, kControlColumns = 2;  // ^A
  size_t rows = prompt_columns / columns, column = prompt_columns % columns;
  for (const wchar_t c : text) {
    if (c == L'\n') {
      ++rows;
      column = 0;
      continue;
    }
    const int known = wcwidth(c);
    const size_t width = c == L'\t'                 ? kTab - column % kTab
                         : known >= 0               ? static_cast<size_t>(known)
                         : c < L' ' || c == kDelete ? kControlColumns
                                                    : fmt::format("\\U+{:04X}", static_cast<uint32_t>(c)).size();
    if (column + width > columns) {  // a wide character is not divided
      ++rows;
      column = 0;
    }
    column += width;
    if (column < columns) continue;
    ++rows;
    column -= columns;
  }
  return rows;
}

size_t cluster_after(std::wstring_view text, size_t at) {
  utf8proc_int32_t state = 0;
  for (size_t i = 1; i < text.size(); ++i)  // from the beginning: flags pair up
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(text[i - 1]),
                                         static_cast<utf8proc_int32_t>(text[i]), &state) &&
        i > at)
      return i;
  return text.size();
}

size_t cluster_before(std::wstring_view text, size_t at) {
  size_t before = 0;
  for (size_t next = cluster_after(text, 0); next < at; next = cluster_after(text, next)) before = next;
  return before;
}

unsigned char erase_cluster_before(EditLine* editor, int) {
  const size_t at = line_cursor(editor);
  if (at == 0) return CC_ERROR;
  el_wdeletestr(editor, static_cast<int>(at - cluster_before(line_text(editor), at)));
  return CC_REFRESH;
}

unsigned char erase_cluster_after(EditLine* editor, int) {
  const size_t at = line_cursor(editor), after = cluster_after(line_text(editor), at);
  if (after <= at) return CC_ERROR;
  el_cursor(editor, static_cast<int>(after - at));
  el_wdeletestr(editor, static_cast<int>(after - at));
  return CC_REFRESH;
}

unsigned char go_cluster_back(EditLine* editor, int) {
  const size_t at = line_cursor(editor);
  if (at == 0) return CC_ERROR;
  el_cursor(editor, -static_cast<int>(at - cluster_before(line_text(editor), at)));
  return CC_REFRESH;
}

unsigned char go_cluster_on(EditLine* editor, int) {
  const size_t at = line_cursor(editor), after = cluster_after(line_text(editor), at);
  if (after <= at) return CC_ERROR;
  el_cursor(editor, static_cast<int>(after - at));
  return CC_REFRESH;
}

unsigned char complete_line(EditLine* editor, const LineCompleter& completer) {
  const std::string before = narrow(line_text(editor).substr(0, line_cursor(editor)));
  const LineChoices choices = completer ? completer(before) : LineChoices();
  if (choices.words.empty()) return CC_ERROR;
  const std::string word = before.substr(choices.begin), common = common_beginning(choices.words);
  if (common.size() > word.size() || choices.words.size() == 1) {
    std::string more = common.size() > word.size() ? common.substr(word.size()) : "";
    if (choices.words.size() == 1 && !common.ends_with('/')) more += ' ';
    return more.empty() || el_insertstr(editor, more.c_str()) != 0 ? CC_ERROR : CC_REFRESH;
  }
  std::fputs("\n", stdout);
  for (size_t i = 0; i < std::min(choices.words.size(), kMaxShownLines); ++i)
    std::fprintf(stdout, "%s%s", i == 0 ? "" : "  ", choices.words[i].c_str());
  std::fputs(choices.words.size() > kMaxShownLines ? " ...\n" : "\n", stdout);
  std::fflush(stdout);
  return CC_REDISPLAY;
}

unsigned char search_lines(EditLine* editor, const std::vector<std::wstring>& lines) {
  const std::wstring before(line_text(editor));
  std::wstring text;
  std::optional<size_t> found;
  bool failed = false;
  const auto leave = [&](const std::wstring& line) {
    std::fputs("\r\x1b[K", stdout);
    std::fflush(stdout);
    replace_line(editor, line);
  };
  for (;;) {
    const std::wstring shown = found ? lines[*found] : L"";
    std::fprintf(stdout, "\r\x1b[K(%sreverse-i-search)`%s': %s", failed ? "failed " : "", narrow(text).c_str(),
                 narrow(std::wstring_view(shown).substr(0, shown.find(L'\n'))).c_str());
    std::fflush(stdout);
    wchar_t key = 0;
    if (el_wgetc(editor, &key) != 1) {
      leave(before);
      return CC_EOF;
    }
    const std::wstring chosen = found ? lines[*found] : before;
    if (key == L'\r' || key == L'\n') {
      leave(chosen);
      el_wpush(editor, L"\n");  // ends the line as Enter does
      return CC_REDISPLAY;
    }
    if (key == kControlG) {
      leave(before);
      return CC_REDISPLAY;
    }
    if (key == kControlR) {
      const auto older = find_entry(lines, text, found ? *found + 1 : 0);
      failed = !older;
      if (older) found = older;
    } else if (key == kBackspace || key == kDelete) {
      if (!text.empty()) text.pop_back();
      found = find_entry(lines, text, 0);
      failed = false;
    } else if (key < L' ') {  // any other key edits the line that was found
      leave(chosen);
      const wchar_t again[] = {key, 0};
      el_wpush(editor, again);
      return CC_REDISPLAY;
    } else {
      text += key;
      const auto here = find_entry(lines, text, found.value_or(0));
      failed = !here;
      if (here) found = here;
    }
  }
}

}  // namespace millrace
