// Long arrays of a JSON document that become text when they are sent. The log-probability of one token is 8 bytes as
// numbers, about 80 as text and 500 as a Json value: a reply with 100 of them for each of 2,000 tokens would take 120
// MB.
//
//     Json reply = {{"probabilities", late.add(count, write)}};   a Json that names the array
//     LateText text(reply, std::move(late));
//     while (text.next(out, 64 << 10)) { send out }               elements are written here, a part at a time
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/json.h"

namespace millrace {

class LateArrays {
 public:
  // Appends element `i` as JSON. Data that it refers to must live until the text has been written.
  using Write = std::function<void(std::string& out, size_t i)>;

  // A value for one place of the document. to_text() does not know it.
  Json add(size_t count, Write write);
  bool empty() const { return arrays_.empty(); }

 private:
  friend class LateText;
  struct Array {
    size_t count;
    Write write;
  };
  std::vector<Array> arrays_;
};

// The text of a document, in parts. Equal to to_text() of the document whose arrays are complete.
class LateText {
 public:
  LateText(const Json& document, LateArrays arrays);
  // Appends the next part: `bytes` or a little more, or the rest. Returns false if nothing follows.
  bool next(std::string& out, size_t bytes);

 private:
  struct Part {
    std::string text;
    std::optional<size_t> array;  // behind the text
  };
  void split(const Json& json);

  LateArrays arrays_;
  std::vector<Part> parts_;
  size_t part_ = 0, element_ = 0;
  bool in_array_ = false;
};

// The whole text; the arrays are then empty.
std::string to_text(const Json& document, LateArrays& arrays);

}  // namespace millrace
