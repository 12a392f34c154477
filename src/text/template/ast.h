// The syntax tree of a template. Immutable after parsing; shared by all renders.
//
// Variable names are numbered (Ast::names), so that a scope is a short array searched by number. Every node stores the
// height of its subtree. The parser limits the height, so that walking the tree cannot overflow the stack.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "text/template/value.h"

namespace millrace::jinja {

enum class ExprType : uint8_t {
  constant,   // value
  name,       // name
  list,       // children
  tuple,      // children
  dict,       // children: key, value, key, value ...
  attribute,  // children[0] . text
  item,       // children[0] [ children[1] ]
  slice,      // children[0] [ children[1] : children[2] : children[3] ]; an omitted child is null
  call,       // children[0] ( args )
  filter,     // children[0] | text ( args ); children[0] is null in a filter block
  test,       // children[0] is text ( args )
  unary,      // op children[0]
  binary,     // children[0] op children[1]
  compare,    // children[0] ops[0] children[1] ops[1] children[2] ...
  concat,     // children joined with ~
  logical_and,
  logical_or,
  logical_not,
  conditional,  // children[0] if children[1] else children[2]; null: undefined
};

enum class Op : uint8_t { add, sub, mul, div, floordiv, mod, pow, neg, pos, eq, ne, lt, le, gt, ge, in, not_in };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Argument {
  enum class Type : uint8_t { positional, named, star, double_star } type = Type::positional;
  std::string name;
  ExprPtr value;
};

struct Expr {
  ExprType type = ExprType::constant;
  Op op = Op::add;
  int line = 0;
  int height = 1;
  int name = -1;
  std::string text;
  Value value;
  StringObject* symbol = nullptr;  // `text` or the name as a frozen string, for messages and lookups
  std::vector<ExprPtr> children;
  std::vector<Argument> args;
  std::vector<Op> ops;
};

enum class StmtType : uint8_t {
  text,          // value
  print,         // values
  branch,        // bodies[i] if conditions[i]; a body after the last condition is the else branch
  loop,          // for target in expr if condition: bodies[0], else bodies[1]
  assign,        // target = expr
  assign_block,  // target = bodies[0] through filters
  macro,         // macro
  call_block,    // expr is the call, macro its caller
  filter_block,
  with,   // targets = values, bodies[0]
  scope,  // bodies[0] in a separate scope (block, generation, autoescape)
  break_loop,
  continue_loop,
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

// The target of an assignment: a name, an attribute of a namespace, or several of these.
struct Target {
  int name = -1;
  std::string attribute;
  std::vector<Target> parts;
  bool is_tuple = false;
};

struct MacroDef {
  std::string name;
  std::vector<int> parameters;
  std::vector<std::string> parameter_names;
  std::vector<ExprPtr> defaults;  // defaults of the last parameters
  Body body;
  int caller = -1, kwargs = -1, varargs = -1;  // numbers of these names; -1: the body does not use them
};

struct Stmt {
  StmtType type = StmtType::text;
  int line = 0;
  int height = 1;
  bool recursive = false;   // loop
  bool root_scope = false;  // scope: only the variables of the whole template are visible
  Value value;
  ExprPtr expr;
  ExprPtr condition;
  Target target;
  std::vector<ExprPtr> conditions;
  std::vector<Target> targets;
  std::vector<ExprPtr> values;
  std::vector<Body> bodies;
  std::unique_ptr<MacroDef> macro;
};

struct Ast {
  std::vector<std::string> names;    // by number
  std::deque<StringObject> strings;  // frozen constants
  Body body;
  int loop_name = -1, caller_name = -1;  // numbers of "loop" and "caller"
};

}  // namespace millrace::jinja
