#include "text/template/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/template/expression_parser.h"

namespace millrace::jinja {
namespace {

class Parser : ExpressionParser {
 public:
  Parser(std::vector<Token> tokens, int nesting) : ExpressionParser(std::move(tokens), nesting) {}

  std::shared_ptr<const Ast> run() {
    ast_->loop_name = intern("loop");
    ast_->caller_name = intern("caller");
    ast_->body = body({});
    return ast_;
  }

 private:
  // Statements up to a block whose name is in `ends`; the name itself is not consumed.
  Body body(std::initializer_list<std::string_view> ends) {
    Level level(*this);
    Body out;
    while (true) {
      switch (current().type) {
        case TokenType::end:
          if (ends.size() != 0) bad(fmt::format("the template ends where '{}' is expected", *(ends.end() - 1)));
          return out;
        case TokenType::data: {
          StmtPtr s = make_stmt(StmtType::text);
          s->value = Value::of(symbol(take().text), Kind::string);
          out.push_back(std::move(s));
          break;
        }
        case TokenType::variable_begin: {
          StmtPtr s = make_stmt(StmtType::print);
          take();
          s->values.push_back(tuple());
          if (!is(TokenType::variable_end)) unexpected("'}}'");
          take();
          out.push_back(finish_stmt(std::move(s)));
          break;
        }
        case TokenType::block_begin: {
          take();
          for (std::string_view end : ends) {
            if (is_name(end)) return out;
          }
          out.push_back(statement());
          end_block();
          break;
        }
        default: unexpected("a tag");
      }
    }
  }

  // The body of a block; consumes the name of the end tag too.
  Body body_to(std::string_view end) {
    end_block();
    Body b = body({end});
    take();
    return b;
  }

  void end_block() {
    if (!is(TokenType::block_end)) unexpected("'%}'");
    take();
  }

  StmtPtr make_stmt(StmtType type) const {
    auto s = std::make_unique<Stmt>();
    s->type = type;
    s->line = current().line;
    return s;
  }

  StmtPtr finish_stmt(StmtPtr s) const {
    auto expr = [&](const ExprPtr& e) {
      if (e) s->height = std::max(s->height, e->height + 1);
    };
    auto stmts = [&](const Body& b) {
      for (const StmtPtr& inner : b) s->height = std::max(s->height, inner->height + 1);
    };
    expr(s->expr);
    expr(s->condition);
    for (const ExprPtr& e : s->conditions) expr(e);
    for (const ExprPtr& e : s->values) expr(e);
    for (const Body& b : s->bodies) stmts(b);
    if (s->macro) {
      stmts(s->macro->body);
      for (const ExprPtr& e : s->macro->defaults) expr(e);
    }
    if (s->height > nesting_) too_deep();
    return s;
  }

  StmtPtr statement() {
    if (!is(TokenType::name)) unexpected("the name of a tag");
    using Method = StmtPtr (Parser::*)();
    static constexpr std::pair<std::string_view, Method> kTags[] = {
        {"if", &Parser::if_tag},
        {"for", &Parser::for_tag},
        {"set", &Parser::set_tag},
        {"macro", &Parser::macro_tag},
        {"call", &Parser::call_tag},
        {"filter", &Parser::filter_tag},
        {"with", &Parser::with_tag},
        {"break", &Parser::loop_control},
        {"continue", &Parser::loop_control},
        {"print", &Parser::print_tag},
        {"block", &Parser::block_tag},
        {"generation", &Parser::generation_tag},
        {"autoescape", &Parser::autoescape_tag},
    };
    for (const auto& [name, method] : kTags) {
      if (is_name(name)) return finish_stmt((this->*method)());
    }
    for (std::string_view name : {"include", "import", "from", "extends"}) {
      if (is_name(name)) {
        throw Failure{ErrorKind::unsupported, fmt::format("line {}: the tag '{}' reads other files, which a chat "
                                                          "template may not do",
                                                          current().line, name)};
      }
    }
    bad(fmt::format("unknown tag '{}'", current().text.substr(0, 60)));
  }

  StmtPtr if_tag() {
    StmtPtr s = make_stmt(StmtType::branch);
    take();
    s->conditions.push_back(tuple(false));
    while (true) {
      end_block();
      s->bodies.push_back(body({"elif", "else", "endif"}));
      std::string name = take().text;
      if (name == "endif") break;
      if (name == "elif") {
        s->conditions.push_back(tuple(false));
        continue;
      }
      s->bodies.push_back(body_to("endif"));
      break;
    }
    return s;
  }

  StmtPtr for_tag() {
    StmtPtr s = make_stmt(StmtType::loop);
    take();
    s->target = target("in", false);
    expect_name("in");
    s->expr = tuple(false, "recursive");
    if (skip_name("if")) s->condition = expression();
    s->recursive = skip_name("recursive");
    end_block();
    ++loops_;
    s->bodies.push_back(body({"endfor", "else"}));
    --loops_;
    if (take().text == "else") s->bodies.push_back(body_to("endfor"));
    return s;
  }

  StmtPtr loop_control() {
    StmtPtr s = make_stmt(is_name("break") ? StmtType::break_loop : StmtType::continue_loop);
    if (loops_ == 0) bad(fmt::format("'{}' outside loop", current().text));
    take();
    return s;
  }

  StmtPtr set_tag() {
    StmtPtr s = make_stmt(StmtType::assign);
    take();
    s->target = target({}, true);
    if (skip_op("=")) {
      s->expr = tuple();
      return s;
    }
    s->type = StmtType::assign_block;
    s->expr = filters(nullptr, false);
    s->bodies.push_back(isolated([&] { return body_to("endset"); }));
    return s;
  }

  // A body that is rendered separately cannot break the enclosing loop.
  template <typename F>
  Body isolated(F read) {
    int loops = std::exchange(loops_, 0);
    Body b = read();
    loops_ = loops;
    return b;
  }

  Target target(std::string_view stop, bool with_attribute) {
    Target first = target_item(with_attribute);
    if (!is_op(",")) return first;
    Target t;
    t.is_tuple = true;
    t.parts.push_back(std::move(first));
    while (skip_op(",")) {
      if (is_op("=") || is(TokenType::block_end) || is_op(")") || (!stop.empty() && is_name(stop))) break;
      t.parts.push_back(target_item(with_attribute));
    }
    return t;
  }

  Target target_item(bool with_attribute) {
    Level level(*this);
    if (skip_op("(")) {
      Target t = target({}, with_attribute);
      expect_op(")");
      return t;
    }
    Target t;
    std::string name = expect_any_name();
    for (std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) bad(fmt::format("can't assign to '{}'", name));
    }
    t.name = intern(name);
    if (with_attribute && skip_op(".")) {
      t.attribute = expect_any_name();
    }
    if (name == "loop" && !with_attribute) bad("Can't assign to special loop variable in for-loop target");
    return t;
  }

  void signature(MacroDef& macro) {
    expect_op("(");
    while (!is_op(")")) {
      if (!macro.parameters.empty()) expect_op(",");
      if (is_op(")")) break;
      std::string name = expect_any_name();
      macro.parameters.push_back(intern(name));
      macro.parameter_names.push_back(name);
      if (name == "caller" && !is_op("=")) {
        bad("When defining macros or call blocks the special \"caller\" argument must be omitted or be given a "
            "default.");
      }
      if (skip_op("=")) {
        macro.defaults.push_back(expression());
      } else if (!macro.defaults.empty()) {
        bad("non-default argument follows default argument");
      }
    }
    expect_op(")");
  }

  void macro_body(MacroDef& macro, std::string_view end) {
    macros_.push_back(&macro);
    macro.body = isolated([&] { return body_to(end); });
    macros_.pop_back();
    for (size_t i = 0; i < macro.parameters.size(); ++i) {  // a declared parameter of that name is an ordinary one
      if (macro.caller == macro.parameters[i]) macro.caller = -1;
      if (macro.kwargs == macro.parameters[i]) macro.kwargs = -1;
      if (macro.varargs == macro.parameters[i]) macro.varargs = -1;
    }
  }

  StmtPtr macro_tag() {
    StmtPtr s = make_stmt(StmtType::macro);
    take();
    s->macro = std::make_unique<MacroDef>();
    s->macro->name = expect_any_name();
    s->target.name = intern(s->macro->name);
    signature(*s->macro);
    macro_body(*s->macro, "endmacro");
    return s;
  }

  StmtPtr call_tag() {
    StmtPtr s = make_stmt(StmtType::call_block);
    take();
    s->macro = std::make_unique<MacroDef>();
    s->macro->name = "caller";
    if (is_op("(")) signature(*s->macro);
    s->expr = expression();
    if (s->expr->type != ExprType::call) bad("expected call");
    macro_body(*s->macro, "endcall");
    return s;
  }

  StmtPtr filter_tag() {
    StmtPtr s = make_stmt(StmtType::filter_block);
    take();
    s->expr = filters(nullptr, true);
    s->bodies.push_back(isolated([&] { return body_to("endfilter"); }));
    return s;
  }

  StmtPtr with_tag() {
    StmtPtr s = make_stmt(StmtType::with);
    take();
    while (!is(TokenType::block_end)) {
      if (!s->targets.empty()) expect_op(",");
      s->targets.push_back(target_item(false));
      expect_op("=");
      s->values.push_back(expression());
    }
    s->bodies.push_back(body_to("endwith"));
    return s;
  }

  StmtPtr print_tag() {
    StmtPtr s = make_stmt(StmtType::print);
    take();
    while (!is(TokenType::block_end)) {
      if (!s->values.empty()) expect_op(",");
      s->values.push_back(expression());
    }
    return s;
  }

  StmtPtr block_tag() {
    StmtPtr s = make_stmt(StmtType::scope);
    take();
    std::string name = expect_any_name();
    s->root_scope = !skip_name("scoped");
    skip_name("required");
    s->bodies.push_back(isolated([&] { return body_to("endblock"); }));
    skip_name(name);
    return s;
  }

  StmtPtr generation_tag() {
    StmtPtr s = make_stmt(StmtType::scope);
    take();
    s->bodies.push_back(isolated([&] { return body_to("endgeneration"); }));
    return s;
  }

  StmtPtr autoescape_tag() {
    StmtPtr s = make_stmt(StmtType::scope);
    take();
    ExprPtr on = expression();
    if (on->type != ExprType::constant || !on->value.is(Kind::boolean) || on->value.as_bool()) {
      throw Failure{ErrorKind::unsupported, fmt::format("line {}: autoescape can only be false", s->line)};
    }
    s->bodies.push_back(body_to("endautoescape"));
    return s;
  }

  int loops_ = 0;  // enclosing loops that break and continue apply to
};

}  // namespace

std::shared_ptr<const Ast> parse(std::string_view source, int nesting) {
  return Parser(tokenize(source), nesting).run();
}

}  // namespace millrace::jinja
