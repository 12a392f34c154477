#include "line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>

#include "interrupt.h"
#include "terminal/display_width.h"

namespace millrace {
namespace {

constexpr int kPollMs = 100;     // poll interval for a Ctrl-C between two reads
constexpr size_t kColumns = 80;  // of a terminal that does not know its width, as libedit assumes
constexpr int kHistoryEntries = 1000;
constexpr const char* kPasteOn = "\x1b[?2004h";
constexpr const char* kPasteOff = "\x1b[?2004l";
constexpr wchar_t kReplacement = 0xFFFD;

volatile std::sig_atomic_t screen_changed = 0;

// Draws the prompt and the line where they are on the screen: EL_REFRESH begins where the cursor is. `prompt_columns`:
// columns of the prompt. `to_end`: the cursor moves to the end of the line.
void draw_again(EditLine* editor, size_t prompt_columns, bool to_end) {
  const LineInfoW* line = el_wline(editor);
  const size_t columns = terminal_columns(),
               rows = rows_before({line->buffer, static_cast<size_t>(line->cursor - line->buffer)}, prompt_columns,
                                  columns > 0 ? columns : kColumns);
  if (rows > 0) std::fprintf(stdout, "\x1b[%zuA", rows);
  std::fputs("\r\x1b[J", stdout);
  if (to_end) el_cursor(editor, static_cast<int>(line->lastchar - line->cursor));
  el_set(editor, EL_REFRESH);
}

// Waits for bytes on standard input; false on Ctrl-C.
bool wait_for_input(EditLine* editor, size_t prompt_columns) {
  for (;;) {
    if (interrupted()) return false;
    if (editor && screen_changed) {  // window size changed, or back in the foreground
      screen_changed = 0;
      el_set(editor, EL_PREP_TERM, 0);  // libedit assumes that the terminal is unchanged
      el_set(editor, EL_PREP_TERM, 1);
      el_resize(editor);
      draw_again(editor, prompt_columns, false);
    }
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, kPollMs) > 0) return true;
  }
}

class PlainLines : public LineReader {
 public:
  LineEnd read(const char*, std::string* line) override {
    line->clear();
    for (;;) {
      if (const size_t end = waiting_.find('\n', searched_); end != std::string::npos) {
        line->assign(waiting_, 0, end);
        waiting_.erase(0, end + 1);
        searched_ = 0;
        if (line->ends_with('\r')) line->pop_back();
        return LineEnd::line;
      }
      searched_ = waiting_.size();
      if (!wait_for_input(nullptr, 0)) return LineEnd::interrupted;
      char chunk[4096];
      const ssize_t count = ::read(STDIN_FILENO, chunk, sizeof(chunk));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      waiting_.append(chunk, static_cast<size_t>(count));
    }
    if (waiting_.empty()) return LineEnd::end_of_input;
    line->swap(waiting_);  // a last line without a line end
    waiting_.clear();
    searched_ = 0;
    return LineEnd::line;
  }
  void remember(const std::string&) override {}
  bool interactive() const override { return false; }

 private:
  std::string waiting_;
  size_t searched_ = 0;  // bytes of waiting_ without a line end
};

class TerminalLines : public LineReader {
 public:
  TerminalLines(const std::string& history_file, LineCompleter completer);
  ~TerminalLines() override;
  bool works() const { return editor_ && history_; }

  LineEnd read(const char* prompt, std::string* line) override;
  void remember(const std::string& text) override;
  bool interactive() const override { return true; }

 private:
  static TerminalLines& self(EditLine* editor) {
    void* data = nullptr;
    el_get(editor, EL_CLIENTDATA, &data);
    return *static_cast<TerminalLines*>(data);
  }
  static char* show_prompt(EditLine* editor) { return const_cast<char*>(self(editor).prompt_); }
  static int read_char(EditLine* editor, wchar_t* out);
  static unsigned char paste(EditLine* editor, int);
  static unsigned char complete(EditLine* editor, int) { return complete_line(editor, self(editor).completer_); }
  static unsigned char search(EditLine* editor, int);
  void bind_keys();

  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
  const char* prompt_ = "";
  bool begun_ = false;  // the line was not empty when Ctrl-C was typed
  std::string history_file_;
  LineCompleter completer_;
};

TerminalLines::TerminalLines(const std::string& history_file, LineCompleter completer)
    : history_file_(history_file), completer_(std::move(completer)) {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
  editor_ = el_init("millrace", stdin, stdout, stderr);
  history_ = history_init();
  if (!works()) return;
  HistEvent event;
  history(history_, &event, H_SETSIZE, kHistoryEntries);
  history(history_, &event, H_SETUNIQUE, 1);
  if (!history_file_.empty()) history(history_, &event, H_LOAD, history_file_.c_str());
  el_set(editor_, EL_CLIENTDATA, this);
  el_set(editor_, EL_PROMPT, show_prompt);
  el_set(editor_, EL_EDITOR, "emacs");
  el_set(editor_, EL_HIST, history, history_);
  el_set(editor_, EL_GETCFN, read_char);
  el_source(editor_, nullptr);
  bind_keys();
  struct sigaction action {};
  action.sa_handler = [](int) { screen_changed = 1; };
  action.sa_flags = SA_RESTART;
  sigaction(SIGWINCH, &action, nullptr);
  sigaction(SIGCONT, &action, nullptr);
}

TerminalLines::~TerminalLines() {
  HistEvent event;
  if (history_ && !history_file_.empty()) history(history_, &event, H_SAVE, history_file_.c_str());
  if (history_) history_end(history_);
  if (editor_) el_end(editor_);
}

void TerminalLines::bind_keys() {
  el_wset(editor_, EL_ADDFN, L"millrace-paste", L"Insert a paste with its line breaks", paste);
  el_wset(editor_, EL_ADDFN, L"millrace-complete", L"Complete a command or a path", complete);
  el_wset(editor_, EL_ADDFN, L"millrace-search", L"Search in the history", search);
  el_wset(editor_, EL_ADDFN, L"millrace-erase", L"Delete the character before the cursor", erase_cluster_before);
  el_wset(editor_, EL_ADDFN, L"millrace-delete", L"Delete the character at the cursor", erase_cluster_after);
  el_wset(editor_, EL_ADDFN, L"millrace-back", L"Go one character back", go_cluster_back);
  el_wset(editor_, EL_ADDFN, L"millrace-on", L"Go one character on", go_cluster_on);
  const char* keys[][2] = {{"\\e[200~", "millrace-paste"}, {"^I", "millrace-complete"},  {"^R", "millrace-search"},
                           {"^H", "millrace-erase"},       {"^?", "millrace-erase"},     {"\\e[3~", "millrace-delete"},
                           {"\\e[D", "millrace-back"},     {"\\eOD", "millrace-back"},   {"^B", "millrace-back"},
                           {"\\e[C", "millrace-on"},       {"\\eOC", "millrace-on"},     {"^F", "millrace-on"},
                           {"\\e[1~", "ed-move-to-beg"},   {"\\e[4~", "ed-move-to-end"}, {"\\e[1;5C", "em-next-word"},
                           {"\\e[1;5D", "ed-prev-word"}};
  for (const auto& [key, command] : keys) el_set(editor_, EL_BIND, key, command, nullptr);
}

// Reads one UTF-8 character; invalid bytes become U+FFFD. Returns 0 at the end of input, -1 on Ctrl-C.
int TerminalLines::read_char(EditLine* editor, wchar_t* out) {
  std::mbstate_t state{};
  for (;;) {
    const size_t prompt_columns = std::strlen(self(editor).prompt_);
    if (!wait_for_input(editor, prompt_columns)) {
      const LineInfoW* line = el_wline(editor);
      self(editor).begun_ = line->lastchar != line->buffer;
      draw_again(editor, prompt_columns, true);  // output goes below the line
      return -1;
    }
    char byte = 0;
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return 0;
    const size_t used = std::mbrtowc(out, &byte, 1, &state);
    if (used == static_cast<size_t>(-2)) continue;  // incomplete character
    if (used == static_cast<size_t>(-1)) *out = kReplacement;
    return 1;
  }
}

// Bound to the escape sequence that begins a paste: reads everything up to the one that ends it.
unsigned char TerminalLines::paste(EditLine* editor, int) {
  constexpr std::wstring_view kEnd = L"\x1b[201~";
  std::wstring text;
  while (!text.ends_with(kEnd)) {
    wchar_t c = 0;
    if (el_wgetc(editor, &c) != 1) return CC_EOF;
    if (c == L'\n' && text.ends_with(L'\r')) continue;
    text += c;
  }
  text.resize(text.size() - kEnd.size());
  for (wchar_t& c : text)
    if (c == L'\r') c = L'\n';
  std::erase_if(text, [](wchar_t c) { return c == 0; });
  if (!text.empty() && el_winsertstr(editor, text.c_str()) != 0) return CC_ERROR;
  return CC_REFRESH;
}

unsigned char TerminalLines::search(EditLine* editor, int) {
  std::vector<std::wstring> lines;
  HistEvent event;
  History* list = self(editor).history_;
  for (int more = history(list, &event, H_FIRST); more != -1; more = history(list, &event, H_NEXT)) {
    std::wstring line(std::strlen(event.str), L'\0');
    const size_t length = std::mbstowcs(line.data(), event.str, line.size());
    if (length == static_cast<size_t>(-1)) continue;
    line.resize(length);
    while (line.ends_with(L'\n')) line.pop_back();
    lines.push_back(std::move(line));
  }
  return search_lines(editor, lines);
}

LineEnd TerminalLines::read(const char* prompt, std::string* line) {
  line->clear();
  prompt_ = prompt;
  begun_ = false;
  el_set(editor_, EL_PREP_TERM, 1);  // libedit does this after showing the prompt, and loses a Ctrl-D in between
  std::fputs(kPasteOn, stdout);
  std::fflush(stdout);
  int count = 0;
  const char* typed = el_gets(editor_, &count);
  if (typed && count > 0) line->assign(typed, static_cast<size_t>(count));
  std::fputs(kPasteOff, stdout);
  if (interrupted()) std::fputs("^C\n", stdout);
  std::fflush(stdout);
  if (interrupted()) return begun_ ? LineEnd::cleared : LineEnd::interrupted;
  if (!typed || count <= 0) return LineEnd::end_of_input;
  while (line->ends_with('\n') || line->ends_with('\r')) line->pop_back();
  return LineEnd::line;
}

void TerminalLines::remember(const std::string& text) {
  HistEvent event;
  history(history_, &event, H_ENTER, text.c_str());
}

}  // namespace

std::unique_ptr<LineReader> open_line_reader(const std::string& history_file, LineCompleter completer) {
  if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
    auto terminal = std::make_unique<TerminalLines>(history_file, std::move(completer));
    if (terminal->works()) return terminal;
  }
  return std::make_unique<PlainLines>();
}

}  // namespace millrace
