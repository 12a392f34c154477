#include "retrieve/html_text.h"

#include <fmt/format.h>
#include <gumbo.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdlib>
#include <map>

namespace millrace {
namespace {

constexpr size_t kMemoryPerByte = 128, kLeastMemory = size_t{4} << 20, kMostMemory = size_t{512} << 20;

constexpr int64_t kMaxOpenTags = 512;  // as in browsers; the parser's time grows with the depth of each tag

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Returns true for a tag that holds nothing, or that the next one of its kind closes.
bool closes_itself(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "area",   "base", "br",    "col",    "dd",    "dt", "embed", "hr", "img",   "input", "li",    "link", "meta",
      "option", "p",    "param", "source", "tbody", "td", "tfoot", "th", "thead", "tr",    "track", "wbr"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

// Returns an upper bound of the number of tags that are open at once.
int64_t max_open_tags(std::string_view page) {
  std::map<std::string, int64_t, std::less<>> open;
  int64_t now = 0, most = 0;
  std::string name;
  for (size_t at = page.find('<'); at != std::string_view::npos && at + 1 < page.size(); at = page.find('<', at + 1)) {
    const bool closing = page[at + 1] == '/';
    name.clear();
    for (size_t i = at + 1 + closing; i < page.size() && name.size() < 16; ++i) {
      const char c = page[i];
      if (!is_letter(c) && (name.empty() || c < '0' || c > '9')) break;
      name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    if (name.empty() || closes_itself(name)) continue;
    int64_t& of_name = open[name];
    if (closing && of_name == 0) continue;
    of_name += closing ? -1 : 1;
    now += closing ? -1 : 1;
    most = std::max(most, now);
  }
  return most;
}

// Memory of one parse, freed at once: Gumbo's own function frees the tree by recursion, which a page of a million open
// tags would use to overflow the stack. Where the limit is reached, allocation leaves the parser by longjmp; its frames
// are those of C and hold nothing else.
class PageMemory {
 public:
  explicit PageMemory(size_t limit) : limit_(limit) {}
  PageMemory(const PageMemory&) = delete;
  ~PageMemory() {
    while (first_) {
      Block* next = first_->next;
      std::free(first_);
      first_ = next;
    }
  }

  // Returns null if the limit was reached.
  GumboOutput* parse(std::string_view page, const GumboOptions& options) {
    if (setjmp(exit_) != 0) return nullptr;
    return gumbo_parse_with_options(&options, page.data(), page.size());
  }

  static void* allocate(void* memory, size_t bytes) { return static_cast<PageMemory*>(memory)->take(bytes); }
  static void release(void* memory, void* data) { static_cast<PageMemory*>(memory)->give(data); }

 private:
  struct alignas(std::max_align_t) Block {
    Block* next;
    Block* before;
    size_t bytes;
  };

  void* take(size_t bytes) {
    Block* block = nullptr;
    if (bytes <= limit_ - used_) block = static_cast<Block*>(std::malloc(sizeof(Block) + bytes));
    if (!block) std::longjmp(exit_, 1);
    *block = {first_, nullptr, bytes};
    if (first_) first_->before = block;
    first_ = block;
    used_ += bytes;
    return block + 1;
  }

  void give(void* data) {
    if (!data) return;
    Block* block = static_cast<Block*>(data) - 1;
    (block->before ? block->before->next : first_) = block->next;
    if (block->next) block->next->before = block->before;
    used_ -= block->bytes;
    std::free(block);
  }

  const size_t limit_;
  size_t used_ = 0;
  Block* first_ = nullptr;
  std::jmp_buf exit_;
};

bool is_hidden_part(GumboTag tag) {
  constexpr GumboTag kHidden[] = {GUMBO_TAG_SCRIPT,   GUMBO_TAG_STYLE,  GUMBO_TAG_TEMPLATE, GUMBO_TAG_NOSCRIPT,
                                  GUMBO_TAG_TEXTAREA, GUMBO_TAG_SELECT, GUMBO_TAG_SVG,      GUMBO_TAG_MATH,
                                  GUMBO_TAG_IFRAME,   GUMBO_TAG_OBJECT, GUMBO_TAG_HEAD,     GUMBO_TAG_NAV};
  return std::ranges::find(kHidden, tag) != std::end(kHidden);
}

bool is_paragraph(GumboTag tag) {
  constexpr GumboTag kParagraphs[] = {GUMBO_TAG_P,          GUMBO_TAG_DIV,     GUMBO_TAG_SECTION, GUMBO_TAG_ARTICLE,
                                      GUMBO_TAG_BLOCKQUOTE, GUMBO_TAG_PRE,     GUMBO_TAG_UL,      GUMBO_TAG_OL,
                                      GUMBO_TAG_DL,         GUMBO_TAG_TABLE,   GUMBO_TAG_HEADER,  GUMBO_TAG_FOOTER,
                                      GUMBO_TAG_MAIN,       GUMBO_TAG_ASIDE,   GUMBO_TAG_FIGURE,  GUMBO_TAG_FORM,
                                      GUMBO_TAG_HR,         GUMBO_TAG_ADDRESS, GUMBO_TAG_DETAILS};
  return std::ranges::find(kParagraphs, tag) != std::end(kParagraphs);
}

bool is_line(GumboTag tag) {
  constexpr GumboTag kLines[] = {GUMBO_TAG_LI, GUMBO_TAG_BR,      GUMBO_TAG_TR,     GUMBO_TAG_DT,
                                 GUMBO_TAG_DD, GUMBO_TAG_CAPTION, GUMBO_TAG_SUMMARY};
  return std::ranges::find(kLines, tag) != std::end(kLines);
}

int heading_level(GumboTag tag) {
  return tag >= GUMBO_TAG_H1 && tag <= GUMBO_TAG_H6 ? static_cast<int>(tag) - static_cast<int>(GUMBO_TAG_H1) + 1 : 0;
}

class PageWriter {
 public:
  void write(const char* text, bool keeps_blanks) {
    for (; *text; ++text) {
      const bool blank = *text == ' ' || *text == '\t' || *text == '\r' || *text == '\n' || *text == '\f';
      if (keeps_blanks) {
        out_.text += *text;
      } else if (!blank) {
        out_.text += *text;
      } else if (!out_.text.empty() && out_.text.back() != ' ' && out_.text.back() != '\n') {
        out_.text += ' ';
      }
    }
  }

  // Ends the current line, with `lines` line ends.
  void end_line(size_t lines) {
    std::string& text = out_.text;
    while (!text.empty() && text.back() == ' ') text.pop_back();
    if (text.empty()) return;
    const size_t last = text.find_last_not_of('\n');
    const size_t have = text.size() - (last == std::string::npos ? 0 : last + 1);
    if (have < lines) text.append(lines - have, '\n');
  }

  void begin_heading() {
    end_line(2);
    heading_at_ = out_.text.size();
  }

  void end_heading(int level) {
    std::string title = out_.text.substr(std::min(heading_at_, out_.text.size()));
    std::ranges::replace(title, '\n', ' ');
    while (!title.empty() && title.back() == ' ') title.pop_back();
    path_.enter(level, title);
    out_.sections.back().end = static_cast<int64_t>(heading_at_);
    out_.sections.push_back({path_.text(), static_cast<int64_t>(heading_at_), 0});
    end_line(2);
  }

  HtmlText finish() {
    end_line(1);
    out_.sections.back().end = std::ssize(out_.text);
    return std::move(out_);
  }

 private:
  HtmlText out_ = {"", {{}}};
  HeadingPath path_;
  size_t heading_at_ = 0;
};

struct OpenNode {
  const GumboNode* node;
  unsigned child = 0;  // next child
};

bool has_children(const GumboNode& node) {
  return node.type == GUMBO_NODE_ELEMENT || node.type == GUMBO_NODE_TEMPLATE || node.type == GUMBO_NODE_DOCUMENT;
}

const GumboVector& children_of(const GumboNode& node) {
  return node.type == GUMBO_NODE_DOCUMENT ? node.v.document.children : node.v.element.children;
}

void enter_node(const GumboNode& node, PageWriter& writer, int& preformatted) {
  if (node.type == GUMBO_NODE_DOCUMENT) return;
  const GumboTag tag = node.v.element.tag;
  if (tag == GUMBO_TAG_PRE) ++preformatted;
  if (heading_level(tag) > 0) writer.begin_heading();
  if (is_paragraph(tag)) writer.end_line(2);
  if (is_line(tag)) writer.end_line(1);
}

void leave_node(const GumboNode& node, PageWriter& writer, int& preformatted) {
  if (node.type == GUMBO_NODE_DOCUMENT) return;
  const GumboTag tag = node.v.element.tag;
  if (tag == GUMBO_TAG_PRE) --preformatted;
  if (const int level = heading_level(tag)) writer.end_heading(level);
  if (is_paragraph(tag)) writer.end_line(2);
  if (is_line(tag)) writer.end_line(1);
  if (tag == GUMBO_TAG_TD || tag == GUMBO_TAG_TH) writer.write(" ", false);
}

HtmlText text_of(const GumboNode& root) {
  PageWriter writer;
  int preformatted = 0;
  std::vector<OpenNode> open = {{&root}};
  while (!open.empty()) {
    OpenNode& top = open.back();
    const GumboVector& children = children_of(*top.node);
    if (top.child == children.length) {
      leave_node(*top.node, writer, preformatted);
      open.pop_back();
      continue;
    }
    const auto& child = *static_cast<const GumboNode*>(children.data[top.child++]);
    if (child.type == GUMBO_NODE_TEXT || child.type == GUMBO_NODE_WHITESPACE || child.type == GUMBO_NODE_CDATA)
      writer.write(child.v.text.text, preformatted > 0);
    if (!has_children(child) || is_hidden_part(child.v.element.tag)) continue;
    enter_node(child, writer, preformatted);
    open.push_back({&child});
  }
  return writer.finish();
}

}  // namespace

Result<HtmlText> html_text(std::string_view page) {
  if (const int64_t open = max_open_tags(page); open > kMaxOpenTags)
    return Error::resource(
        fmt::format("the HTML page has {} open tags within each other, more than the limit of {}; "
                    "convert it to text",
                    open, kMaxOpenTags));
  const size_t limit = std::min(kMostMemory, kLeastMemory + page.size() * kMemoryPerByte);
  PageMemory memory(limit);
  GumboOptions options = kGumboDefaultOptions;
  options.allocator = PageMemory::allocate;
  options.deallocator = PageMemory::release;
  options.userdata = &memory;
  options.max_errors = 0;
  const GumboOutput* parsed = memory.parse(page, options);
  if (!parsed)
    return Error::resource(
        fmt::format("the HTML page needs more than {} bytes of memory to parse; convert it to text", limit));
  return text_of(*parsed->document);
}

}  // namespace millrace
