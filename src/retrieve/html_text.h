// html_text(): the text of an HTML page, with Gumbo, which parses as browsers do. Scripts, styles and other parts that
// a reader does not see are left out; blocks end with a line end, paragraphs with a blank line, and headings begin
// sections.
//
// Pages are not trusted: open tags within each other and the parser's memory have limits, and neither reading nor
// freeing the tree recurses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "retrieve/text_sections.h"

namespace millrace {

struct HtmlText {
  std::string text;
  std::vector<TextSection> sections;
};

// `page`: valid UTF-8. Errors: resource (the limits).
Result<HtmlText> html_text(std::string_view page);

}  // namespace millrace
