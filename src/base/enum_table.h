// Tables indexed by an enum. The compiler counts the enumerators, and a table with a different number of entries does
// not compile.
//
//   enum class Level { debug, info, error };
//   constexpr EnumNames<Level> kLevels("debug", "info", "error");     kLevels[Level::info], kLevels.find("info")
//
// The enumerators are counted by the compiler's names for values: GCC and clang write `Level::info` for 1 and
// `(Level)7` for a value without an enumerator. Values from 0 to 63 are tried.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace millrace {

namespace enum_detail {

template <auto V>
constexpr bool has_name() {
  constexpr std::string_view signature =
      __PRETTY_FUNCTION__;  // "... [with auto V = Level::info]", "... [V = (Level)7]"
  constexpr size_t end = signature.find_first_of("];", signature.find("V = "));
  const auto in_word = [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  size_t begin = end;
  while (begin > 0 && in_word(signature[begin - 1])) --begin;
  return begin < end && !(signature[begin] >= '0' && signature[begin] <= '9');
}

inline constexpr size_t kMaxEnumerators = 64;

template <typename E, size_t... I>
constexpr std::array<bool, kMaxEnumerators> list_named(std::index_sequence<I...>) {
  return {has_name<static_cast<E>(I)>()...};
}

template <typename E>
inline constexpr std::array<bool, kMaxEnumerators> kNamed = list_named<E>(std::make_index_sequence<kMaxEnumerators>());

template <typename E>
constexpr size_t count() {
  size_t count = 0, named = 0;
  while (count < kMaxEnumerators && kNamed<E>[count]) ++count;
  for (bool one : kNamed<E>) named += one;
  return count == named ? count : 0;  // 0: the values are not contiguous from 0
}

}  // namespace enum_detail

// Number of enumerators of E, which must be 0, 1, 2 ...
template <typename E>
inline constexpr size_t kEnumerators = [] {
  static_assert(std::is_enum_v<E> && !std::is_convertible_v<E, int>, "an enum class");
  static_assert(enum_detail::count<E>() > 0, "its enumerators must be 0, 1, 2 ...");
  return enum_detail::count<E>();
}();

// Returns the enumerator with this value; nullopt: none.
template <typename E>
constexpr std::optional<E> find_enumerator(int64_t value) {
  if (value < 0 || value >= static_cast<int64_t>(enum_detail::kMaxEnumerators) ||
      !enum_detail::kNamed<E>[static_cast<size_t>(value)])
    return std::nullopt;
  return static_cast<E>(value);
}

// All enumerators in order.
template <typename E>
inline constexpr std::array<E, kEnumerators<E>> kAllOf = [] {
  std::array<E, kEnumerators<E>> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<E>(i);
  return all;
}();

// One T per enumerator.
template <typename E, typename T>
class EnumTable {
 public:
  constexpr EnumTable() = default;
  template <typename... Entries>
  requires(sizeof...(Entries) > 0 &&
           (std::is_convertible_v<Entries&&, T> && ...)) constexpr explicit EnumTable(Entries&&... entries)
      : entries_{T(std::forward<Entries>(entries))...} {
    static_assert(sizeof...(Entries) == kEnumerators<E>, "one entry for each enumerator");
  }

  constexpr const T& operator[](E e) const { return entries_[static_cast<size_t>(e)]; }
  constexpr T& operator[](E e) { return entries_[static_cast<size_t>(e)]; }
  constexpr auto begin() const { return entries_.begin(); }
  constexpr auto end() const { return entries_.end(); }
  constexpr auto begin() { return entries_.begin(); }
  constexpr auto end() { return entries_.end(); }

 private:
  std::array<T, kEnumerators<E>> entries_{};
};

// The names of the enumerators, as written in files and flags.
template <typename E>
class EnumNames : public EnumTable<E, const char*> {
 public:
  using EnumTable<E, const char*>::EnumTable;

  constexpr std::optional<E> find(std::string_view name) const {
    for (E e : kAllOf<E>)
      if (name == (*this)[e]) return e;
    return std::nullopt;
  }
};

}  // namespace millrace
