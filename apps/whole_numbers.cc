#include "whole_numbers.h"

#include <cerrno>
#include <cstdlib>
#include <string>

namespace millrace {
namespace {

// Returns "" also for a text that is no number: CLI11 refuses it afterwards.
std::string check_signed(const std::string& text) {
  errno = 0;
  std::strtoll(text.c_str(), nullptr, 0);
  if (errno != ERANGE) return "";
  return "expected a whole number from -2^63 to 2^63 - 1, got '" + text + "'";
}

std::string check_unsigned(const std::string& text) {
  errno = 0;
  char* end = nullptr;
  std::strtoull(text.c_str(), &end, 0);
  const bool whole = !text.empty() && end == text.c_str() + text.size() && text.find('-') == std::string::npos;
  if (whole && errno != ERANGE) return "";
  return "expected a whole number from 0 to 2^64 - 1, got '" + text + "'";
}

}  // namespace

void check_whole_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("INT")) option->check(CLI::Validator(check_signed, ""));
    if (type.starts_with("UINT")) option->check(CLI::Validator(check_unsigned, ""));
  }
  for (CLI::App* one : app.get_subcommands([](CLI::App*) { return true; })) check_whole_numbers(*one);
}

}  // namespace millrace
