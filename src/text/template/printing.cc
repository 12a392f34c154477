#include "text/template/printing.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/template/code_points.h"
#include "text/template/operators.h"
#include "text/template/runtime.h"

namespace millrace::jinja {
namespace {

class ReprWriter {
 public:
  explicit ReprWriter(Runtime& rt) : rt_(rt) {}

  void write(const Value& v) {
    rt_.budget.spend(1);
    Runtime::Level level(rt_);  // a namespace may contain itself, below any number of lists
    switch (v.kind()) {
      case Kind::absent:
      case Kind::none: return put("None");
      case Kind::undefined: return put("Undefined");
      case Kind::boolean: return put(v.as_bool() ? "True" : "False");
      case Kind::integer: return put(to_string(v.as_int()));
      case Kind::floating: return put(float_repr(v.as_double()));
      case Kind::string:
        rt_.budget.spend_bytes(v.text().size() * 4);
        return put(v.string()->markup ? "Markup(" + quote(v.text()) + ")" : quote(v.text()));
      case Kind::sequence: return sequence(v.sequence());
      case Kind::dict: return dict(v.dict());
      case Kind::object: return put(v.object()->repr(rt_));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void put(std::string_view text) {
    rt_.budget.spend_bytes(text.size());
    out_ += text;
    rt_.budget.check_string(out_.size());
  }

  void sequence(const SequenceObject& s) {
    switch (s.type) {
      case SequenceType::generator: return put(fmt::format("<{} object>", s.name));
      case SequenceType::range: {
        std::string step = s.step == 1 ? "" : ", " + to_string(s.step);
        return put(fmt::format("range({}, {}{})", to_string(s.start), to_string(s.stop), step));
      }
      case SequenceType::tuple:
      case SequenceType::group:
        put("(");
        elements(s);
        return put(s.items.size() == 1 ? ",)" : ")");
      default: break;
    }
    const char* view = s.type == SequenceType::keys     ? "dict_keys("
                       : s.type == SequenceType::values ? "dict_values("
                       : s.type == SequenceType::items  ? "dict_items("
                                                        : "";
    put(view);
    put("[");
    elements(s);
    put("]");
    if (*view) put(")");
  }

  void elements(const SequenceObject& s) {
    for (size_t i = 0; i < s.items.size(); ++i) {
      if (i) put(", ");
      write(s.items[i]);
    }
  }

  void dict(const DictObject& d) {
    put("{");
    for (size_t i = 0; i < d.items.size(); ++i) {
      if (i) put(", ");
      write(d.items[i].first);
      put(": ");
      write(d.items[i].second);
    }
    put("}");
  }

  Runtime& rt_;
  std::string out_;
};

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style) {}

  void write(const Value& v, int depth) {
    rt_.budget.spend(1);
    switch (v.kind()) {
      case Kind::absent:
      case Kind::none: return put("null");
      case Kind::boolean: return put(v.as_bool() ? "true" : "false");
      case Kind::integer: return put(to_string(v.as_int()));
      case Kind::floating: return put(number(v.as_double()));
      case Kind::string: return string(v.text());
      case Kind::dict: return dict(v.dict(), depth);
      case Kind::sequence: {
        SequenceType t = v.sequence().type;
        if (t == SequenceType::list || t == SequenceType::tuple || t == SequenceType::group) {
          return list(v.sequence(), depth);
        }
        break;
      }
      default: break;
    }
    fail(fmt::format("Object of type {} is not JSON serializable", type_name(v)));
  }

  std::string take() { return std::move(out_); }

 private:
  void put(std::string_view text) {
    rt_.budget.spend_bytes(text.size());
    out_ += text;
    rt_.budget.check_string(out_.size());
  }

  static std::string number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return float_repr(d);
  }

  void new_line(int depth) {
    if (!style_.has_indent) return;
    put("\n");
    for (int i = 0; i < depth; ++i) put(style_.indent);
  }

  void list(const SequenceObject& s, int depth) {
    if (s.items.empty()) return put("[]");
    put("[");
    for (size_t i = 0; i < s.items.size(); ++i) {
      if (i) put(style_.item_separator);
      new_line(depth + 1);
      write(s.items[i], depth + 1);
    }
    new_line(depth);
    put("]");
  }

  void dict(const DictObject& d, int depth) {
    if (d.items.empty()) return put("{}");
    std::vector<const std::pair<Value, Value>*> order;
    for (const auto& item : d.items) order.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(),
                       [&](auto* a, auto* b) { return less(a->first, b->first, rt_.budget); });
    }
    put("{");
    for (size_t i = 0; i < order.size(); ++i) {
      if (i) put(style_.item_separator);
      new_line(depth + 1);
      key(order[i]->first);
      put(style_.key_separator);
      write(order[i]->second, depth + 1);
    }
    new_line(depth);
    put("}");
  }

  void key(const Value& k) {
    switch (k.kind()) {
      case Kind::string: return string(k.text());
      case Kind::none: return put("\"null\"");
      case Kind::boolean: return put(k.as_bool() ? "\"true\"" : "\"false\"");
      case Kind::integer: return put("\"" + to_string(k.as_int()) + "\"");
      case Kind::floating: return put("\"" + number(k.as_double()) + "\"");
      default: fail(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(k)));
    }
  }

  void string(std::string_view text) {
    rt_.budget.spend_bytes(text.size());
    out_ += '"';
    for (size_t pos = 0; pos < text.size();) {
      size_t start = pos;
      char32_t c = decode(text, pos);
      switch (c) {
        case '"': out_ += "\\\""; break;
        case '\\': out_ += "\\\\"; break;
        case '\n': out_ += "\\n"; break;
        case '\r': out_ += "\\r"; break;
        case '\t': out_ += "\\t"; break;
        case '\b': out_ += "\\b"; break;
        case '\f': out_ += "\\f"; break;
        default:
          if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F)) {
            escape(c);
          } else {
            out_ += text.substr(start, pos - start);
          }
      }
    }
    out_ += '"';
    rt_.budget.check_string(out_.size());
  }

  void escape(char32_t c) {
    auto unit = [&](uint32_t u) { out_ += fmt::format("\\u{:04x}", u); };
    if (c < 0x10000) return unit(c);
    unit(0xD800 + ((c - 0x10000) >> 10));
    unit(0xDC00 + ((c - 0x10000) & 0x3FF));
  }

  Runtime& rt_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string to_string(Int v) { return fmt::format("{}", v); }

// The shortest digits that parse back to `v`; with an exponent below 1e-4 and from 1e16 on.
std::string float_repr(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, v, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text[0] == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  if (digits.size() > 1) digits.erase(1, 1);
  int exponent = std::stoi(std::string(text.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string quote(std::string_view text) {
  bool single = text.find('\'') != std::string_view::npos;
  char q = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, q);
  for (size_t pos = 0; pos < text.size();) {
    size_t start = pos;
    char32_t c = decode(text, pos);
    if (c == static_cast<char32_t>(q) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(start, pos - start);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  out += q;
  return out;
}

std::string repr(Runtime& rt, const Value& v) {
  ReprWriter writer(rt);
  writer.write(v);
  return writer.take();
}

std::string str(Runtime& rt, const Value& v) {
  if (v.is_undefined()) return "";
  if (v.is_string()) {
    rt.budget.spend_bytes(v.text().size());
    return std::string(v.text());
  }
  return repr(rt, v);
}

std::string to_json(Runtime& rt, const Value& v, const JsonStyle& style) {
  JsonWriter writer(rt, style);
  writer.write(v, 0);
  return writer.take();
}

}  // namespace millrace::jinja
