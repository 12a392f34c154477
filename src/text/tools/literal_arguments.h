// Arguments of a call that are written as literals of another notation than JSON, and the JSON they mean:
//
//   Gemma 4   place:<|"|>Rome<|"|>,days:[1,2],deep:{a:true}}
//   Python    place='Rome', days=[1, 2], deep={"a": True})
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

class LiteralArguments {
 public:
  struct Form {
    char key_end;            // between a key and its value, outside of nested objects
    char close;              // ends the arguments
    std::string_view quote;  // around strings, in addition to " and '; "": none
  };
  enum class State { more, done, wrong };

  explicit LiteralArguments(const Form& form) : form_(form), levels_{{form.close, form.key_end, false, false}} {}

  // Appends what is known of the JSON text to `json`. wrong: this byte cannot follow.
  State push(char c, std::string& json);

 private:
  enum class Place { begin, start, bare_key, after_key, value, opening, text, text_end, bare, after };
  struct Level {
    char close, key_end;
    bool list, any;
  };

  State take(char c, std::string& json);
  State take_start(char c, std::string& json);
  State take_bare_key(char c, std::string& json);
  State take_value(char c, std::string& json);
  State take_opening(char c, std::string& json);
  State take_text(char c, std::string& json);
  State take_escape(char c, std::string& json);
  State take_text_end(char c, std::string& json);
  State take_bare(char c, std::string& json);
  State take_after(char c, std::string& json);
  State close_level(std::string& json);
  bool may_open_text(char c, std::string& json);
  void open_text(std::string_view quote, std::string& json);
  void end_text(std::string& json);
  void open_level(char close, bool list, std::string& json);

  Form form_;
  std::vector<Level> levels_;
  Place place_ = Place::begin;
  std::string held_;        // bytes that are not decided yet
  std::string_view quote_;  // quote that ends the current text
  std::string escape_;      // an escape sequence that is not complete, from its backslash on
  bool is_key_ = false;
};

}  // namespace millrace
