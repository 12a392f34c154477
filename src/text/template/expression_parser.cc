#include "text/template/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::jinja {
namespace {

std::string describe(const Token& t) {
  switch (t.type) {
    case TokenType::data: return "text";
    case TokenType::end: return "end of template";
    case TokenType::string: return "a string";
    case TokenType::name: return fmt::format("'{}'", t.text.substr(0, 60));
    default: return fmt::format("'{}'", t.text.substr(0, 60));
  }
}

}  // namespace

void ExpressionParser::bad(const std::string& message) const {
  fail(fmt::format("line {}: {}", current().line, message));
}

void ExpressionParser::unexpected(std::string_view expected) const {
  bad(fmt::format("expected {}, got {}", expected, describe(current())));
}

void ExpressionParser::too_deep() const {
  fail_resource(fmt::format("line {}: the template is nested too deeply, at most {} levels", current().line, nesting_));
}

void ExpressionParser::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected(fmt::format("'{}'", op));
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected(fmt::format("'{}'", name));
}

std::string ExpressionParser::expect_any_name() {
  if (!is(TokenType::name)) unexpected("a name");
  return take().text;
}

int ExpressionParser::intern(const std::string& name) {
  auto [it, added] = name_ids_.try_emplace(name, static_cast<int>(ast_->names.size()));
  if (added) ast_->names.push_back(name);
  return it->second;
}

StringObject* ExpressionParser::symbol(std::string text) {
  auto [it, added] = symbols_.try_emplace(text, nullptr);
  if (added) {
    StringObject& s = ast_->strings.emplace_back();
    s.refs = kFrozen;
    s.text = std::move(text);
    it->second = &s;
  }
  return it->second;
}

ExprPtr ExpressionParser::make(ExprType type, int line) const {
  auto e = std::make_unique<Expr>();
  e->type = type;
  e->line = line;
  return e;
}

ExprPtr ExpressionParser::finish(ExprPtr e) const {
  for (const ExprPtr& child : e->children) {
    if (child) e->height = std::max(e->height, child->height + 1);
  }
  for (const Argument& a : e->args) e->height = std::max(e->height, a.value->height + 1);
  if (e->height > nesting_) too_deep();
  return e;
}

ExprPtr ExpressionParser::constant(Value value, int line) const {
  ExprPtr e = make(ExprType::constant, line);
  e->value = std::move(value);
  return e;
}

ExprPtr ExpressionParser::binary(Op op, ExprPtr left, ExprPtr right, int line) const {
  ExprPtr e = make(ExprType::binary, line);
  e->op = op;
  e->children.push_back(std::move(left));
  e->children.push_back(std::move(right));
  return finish(std::move(e));
}

ExprPtr ExpressionParser::expression(bool with_condition) {
  Level level(*this);
  return with_condition ? conditional() : logical_or();
}

ExprPtr ExpressionParser::tuple(bool with_condition, std::string_view stop, bool in_brackets) {
  int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  auto at_end = [&] {
    return is(TokenType::variable_end) || is(TokenType::block_end) || is_op(")") || (!stop.empty() && is_name(stop));
  };
  while (true) {
    if (!items.empty()) {
      if (!skip_op(",")) break;
      is_tuple = true;
    }
    if (at_end()) break;
    items.push_back(expression(with_condition));
    if (!is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!in_brackets) unexpected("an expression");
  }
  ExprPtr e = make(ExprType::tuple, line);
  e->children = std::move(items);
  return finish(std::move(e));
}

ExprPtr ExpressionParser::conditional() {
  int line = current().line;
  ExprPtr e = logical_or();
  while (skip_name("if")) {
    ExprPtr c = make(ExprType::conditional, line);
    c->children.push_back(std::move(e));
    c->children.push_back(logical_or());
    c->children.push_back(skip_name("else") ? expression() : nullptr);
    e = finish(std::move(c));
    line = current().line;
  }
  return e;
}

ExprPtr ExpressionParser::logical_or() {
  ExprPtr e = logical_and();
  while (is_name("or")) {
    ExprPtr parent = make(ExprType::logical_or, take().line);
    parent->children.push_back(std::move(e));
    parent->children.push_back(logical_and());
    e = finish(std::move(parent));
  }
  return e;
}

ExprPtr ExpressionParser::logical_and() {
  ExprPtr e = logical_not();
  while (is_name("and")) {
    ExprPtr parent = make(ExprType::logical_and, take().line);
    parent->children.push_back(std::move(e));
    parent->children.push_back(logical_not());
    e = finish(std::move(parent));
  }
  return e;
}

ExprPtr ExpressionParser::logical_not() {
  if (!is_name("not")) return comparison();
  Level level(*this);
  ExprPtr e = make(ExprType::logical_not, take().line);
  e->children.push_back(logical_not());
  return finish(std::move(e));
}

ExprPtr ExpressionParser::comparison() {
  int line = current().line;
  ExprPtr first = sum();
  ExprPtr e;
  while (true) {
    Op op;
    if (skip_op("=="))
      op = Op::eq;
    else if (skip_op("!="))
      op = Op::ne;
    else if (skip_op("<="))
      op = Op::le;
    else if (skip_op("<"))
      op = Op::lt;
    else if (skip_op(">="))
      op = Op::ge;
    else if (skip_op(">"))
      op = Op::gt;
    else if (skip_name("in"))
      op = Op::in;
    else if (is_name("not") && ahead().type == TokenType::name && ahead().text == "in") {
      take();
      take();
      op = Op::not_in;
    } else {
      break;
    }
    if (!e) {
      e = make(ExprType::compare, line);
      e->children.push_back(std::move(first));
    }
    e->ops.push_back(op);
    e->children.push_back(sum());
  }
  return e ? finish(std::move(e)) : std::move(first);
}

ExprPtr ExpressionParser::sum() {
  ExprPtr e = concat();
  while (is_op("+") || is_op("-")) {
    Token t = take();
    ExprPtr right = concat();
    e = binary(t.text == "+" ? Op::add : Op::sub, std::move(e), std::move(right), t.line);
  }
  return e;
}

ExprPtr ExpressionParser::concat() {
  int line = current().line;
  ExprPtr first = product();
  if (!is_op("~")) return first;
  ExprPtr e = make(ExprType::concat, line);
  e->children.push_back(std::move(first));
  while (skip_op("~")) e->children.push_back(product());
  return finish(std::move(e));
}

ExprPtr ExpressionParser::product() {
  ExprPtr e = power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    Token t = take();
    Op op = t.text == "*" ? Op::mul : t.text == "/" ? Op::div : t.text == "//" ? Op::floordiv : Op::mod;
    ExprPtr right = power();
    e = binary(op, std::move(e), std::move(right), t.line);
  }
  return e;
}

ExprPtr ExpressionParser::power() {
  ExprPtr e = unary(true);
  while (is_op("**")) {
    int line = take().line;
    ExprPtr right = unary(true);
    e = binary(Op::pow, std::move(e), std::move(right), line);
  }
  return e;
}

ExprPtr ExpressionParser::unary(bool with_filters) {
  ExprPtr e;
  if (is_op("-") || is_op("+")) {
    Level level(*this);
    Token t = take();
    e = make(ExprType::unary, t.line);
    e->op = t.text == "-" ? Op::neg : Op::pos;
    e->children.push_back(unary(false));
    e = finish(std::move(e));
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return with_filters ? filters_and_tests(std::move(e)) : std::move(e);
}

ExprPtr ExpressionParser::primary() {
  int line = current().line;
  switch (current().type) {
    case TokenType::name: return name();
    case TokenType::string: {
      std::string text = take().text;
      while (is(TokenType::string)) text += take().text;
      return constant(Value::of(symbol(std::move(text)), Kind::string), line);
    }
    case TokenType::integer: return constant(Value::integer(take().integer), line);
    case TokenType::floating: return constant(Value::floating(take().number), line);
    default: break;
  }
  if (skip_op("(")) {
    ExprPtr e = tuple(true, {}, true);
    expect_op(")");
    return e;
  }
  if (is_op("[")) return list();
  if (is_op("{")) return dict();
  unexpected("an expression");
}

ExprPtr ExpressionParser::name() {
  Token t = take();
  if (t.text == "true" || t.text == "True") return constant(Value::boolean(true), t.line);
  if (t.text == "false" || t.text == "False") return constant(Value::boolean(false), t.line);
  if (t.text == "none" || t.text == "None") return constant(Value(), t.line);
  ExprPtr e = make(ExprType::name, t.line);
  e->name = intern(t.text);
  e->symbol = symbol(t.text);
  for (MacroDef* macro : macros_) {
    if (t.text == "caller") macro->caller = e->name;
    if (t.text == "kwargs") macro->kwargs = e->name;
    if (t.text == "varargs") macro->varargs = e->name;
  }
  return e;
}

ExprPtr ExpressionParser::list() {
  ExprPtr e = make(ExprType::list, take().line);
  while (!is_op("]")) {
    if (!e->children.empty()) expect_op(",");
    if (is_op("]")) break;
    e->children.push_back(expression());
  }
  expect_op("]");
  return finish(std::move(e));
}

ExprPtr ExpressionParser::dict() {
  ExprPtr e = make(ExprType::dict, take().line);
  while (!is_op("}")) {
    if (!e->children.empty()) expect_op(",");
    if (is_op("}")) break;
    e->children.push_back(expression());
    expect_op(":");
    e->children.push_back(expression());
  }
  expect_op("}");
  return finish(std::move(e));
}

ExprPtr ExpressionParser::postfix(ExprPtr e) {
  while (true) {
    if (is_op(".") || is_op("[")) {
      e = subscript(std::move(e));
    } else if (is_op("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr e) {
  Token open = take();
  if (open.text == "[") {
    e = slice_or_item(std::move(e), open.line);
    expect_op("]");
    return e;
  }
  if (is(TokenType::name)) {
    ExprPtr a = make(ExprType::attribute, open.line);
    a->symbol = symbol(take().text);
    a->children.push_back(std::move(e));
    return finish(std::move(a));
  }
  if (!is(TokenType::integer)) unexpected("a name or a number");
  ExprPtr item = make(ExprType::item, open.line);
  item->children.push_back(std::move(e));
  item->children.push_back(constant(Value::integer(take().integer), open.line));
  return finish(std::move(item));
}

ExprPtr ExpressionParser::slice_or_item(ExprPtr e, int line) {
  ExprPtr parts[3];
  bool is_slice = false;
  if (!is_op(":")) parts[0] = expression();
  if (skip_op(":")) {
    is_slice = true;
    if (!is_op(":") && !is_op("]")) parts[1] = expression();
    if (skip_op(":") && !is_op("]")) parts[2] = expression();
  } else if (is_op(",")) {  // a tuple as the key
    ExprPtr key = make(ExprType::tuple, line);
    key->children.push_back(std::move(parts[0]));
    while (skip_op(",")) {
      if (is_op("]")) break;
      key->children.push_back(expression());
    }
    parts[0] = finish(std::move(key));
  }
  ExprPtr result = make(is_slice ? ExprType::slice : ExprType::item, line);
  result->children.push_back(std::move(e));
  for (int i = 0; i < (is_slice ? 3 : 1); ++i) result->children.push_back(std::move(parts[i]));
  return finish(std::move(result));
}

ExprPtr ExpressionParser::call(ExprPtr e) {
  ExprPtr c = make(ExprType::call, current().line);
  c->children.push_back(std::move(e));
  arguments(c->args);
  return finish(std::move(c));
}

void ExpressionParser::arguments(std::vector<Argument>& out) {
  expect_op("(");
  bool named = false, star = false, double_star = false;
  while (!is_op(")")) {
    if (!out.empty()) {
      expect_op(",");
      if (is_op(")")) break;
    }
    Argument a;
    if (skip_op("**")) {
      if (double_star) bad("invalid syntax for function call expression");
      a.type = Argument::Type::double_star;
      double_star = true;
    } else if (skip_op("*")) {
      if (star || double_star) bad("invalid syntax for function call expression");
      a.type = Argument::Type::star;
      star = true;
    } else if (is(TokenType::name) && ahead().type == TokenType::op && ahead().text == "=") {
      if (double_star) bad("invalid syntax for function call expression");
      a.type = Argument::Type::named;
      a.name = take().text;
      take();
      named = true;
    } else if (named || star || double_star) {
      bad("invalid syntax for function call expression");
    }
    a.value = expression();
    out.push_back(std::move(a));
  }
  expect_op(")");
}

ExprPtr ExpressionParser::filters_and_tests(ExprPtr e) {
  while (true) {
    if (is_op("|")) {
      e = filters(std::move(e), false);
    } else if (is_name("is")) {
      e = test(std::move(e));
    } else if (is_op("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

std::string ExpressionParser::dotted_name() {
  std::string name = expect_any_name();
  while (skip_op(".")) name += "." + expect_any_name();
  return name;
}

ExprPtr ExpressionParser::filters(ExprPtr e, bool begin_inline) {
  while (begin_inline || skip_op("|")) {
    begin_inline = false;
    ExprPtr f = make(ExprType::filter, current().line);
    f->text = dotted_name();
    f->children.push_back(std::move(e));
    if (is_op("(")) arguments(f->args);
    e = finish(std::move(f));
  }
  return e;
}

ExprPtr ExpressionParser::test(ExprPtr e) {
  ExprPtr t = make(ExprType::test, take().line);
  bool negated = skip_name("not");
  t->text = dotted_name();
  t->children.push_back(std::move(e));
  TokenType next = current().type;
  bool has_operand = next == TokenType::name || next == TokenType::string || next == TokenType::integer ||
                     next == TokenType::floating || is_op("[") || is_op("{");
  if (is_op("(")) {
    arguments(t->args);
  } else if (has_operand && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) bad("You cannot chain multiple tests with is");
    Argument a;
    a.value = postfix(primary());
    t->args.push_back(std::move(a));
  }
  t = finish(std::move(t));
  if (!negated) return t;
  ExprPtr n = make(ExprType::logical_not, t->line);
  n->children.push_back(std::move(t));
  return finish(std::move(n));
}

}  // namespace millrace::jinja
