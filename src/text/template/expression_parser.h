// ExpressionParser: the base class of the parser. It parses expressions and has the token cursor. Precedence, loosest
// first: if-else, or, and, not, comparisons and in, + -, ~, * / // %, **, unary, then calls, subscripts, filters and
// tests.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/template/ast.h"
#include "text/template/lexer.h"

namespace millrace::jinja {

class ExpressionParser {
 protected:
  ExpressionParser(std::vector<Token> tokens, int nesting)
      : tokens_(std::move(tokens)), nesting_(nesting), ast_(std::make_shared<Ast>()) {}

  // Counts the recursion depth of the parser.
  struct Level {
    explicit Level(ExpressionParser& p) : parser(p) {
      if (++parser.level_ > parser.nesting_) parser.too_deep();
    }
    ~Level() { --parser.level_; }
    ExpressionParser& parser;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool is(TokenType type) const { return current().type == type; }
  bool is_op(std::string_view op) const { return is(TokenType::op) && current().text == op; }
  bool is_name(std::string_view name) const { return is(TokenType::name) && current().text == name; }
  bool skip_op(std::string_view op) { return is_op(op) && (take(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (take(), true); }
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  std::string expect_any_name();
  [[noreturn]] void bad(const std::string& message) const;
  [[noreturn]] void unexpected(std::string_view expected) const;
  [[noreturn]] void too_deep() const;

  int intern(const std::string& name);
  StringObject* symbol(std::string text);
  ExprPtr make(ExprType type, int line) const;
  ExprPtr finish(ExprPtr e) const;  // sets the height and checks it
  ExprPtr constant(Value value, int line) const;

  ExprPtr expression(bool with_condition = true);
  // Parses one expression, or a tuple if commas follow. `stop`: a name that ends the tuple.
  ExprPtr tuple(bool with_condition = true, std::string_view stop = {}, bool in_brackets = false);
  ExprPtr filters(ExprPtr e, bool begin_inline);
  ExprPtr postfix(ExprPtr e);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_;
  int level_ = 0;
  std::shared_ptr<Ast> ast_;
  std::vector<MacroDef*> macros_;  // macros whose bodies are being parsed, outermost first

 private:
  ExprPtr conditional();
  ExprPtr logical_or();
  ExprPtr logical_and();
  ExprPtr logical_not();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters);
  ExprPtr primary();
  ExprPtr name();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr subscript(ExprPtr e);
  ExprPtr slice_or_item(ExprPtr e, int line);
  ExprPtr call(ExprPtr e);
  ExprPtr filters_and_tests(ExprPtr e);
  ExprPtr test(ExprPtr e);
  void arguments(std::vector<Argument>& out);
  std::string dotted_name();
  ExprPtr binary(Op op, ExprPtr left, ExprPtr right, int line) const;

  std::unordered_map<std::string, int> name_ids_;
  std::unordered_map<std::string, StringObject*> symbols_;
};

}  // namespace millrace::jinja
