// EXPECT_CONTAINS(message, text): `text` is part of `message`; a failure prints both.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace millrace::testing {

inline bool contains(const std::string& message, const std::string& text) {
  return message.find(text) != std::string::npos;
}

}  // namespace millrace::testing

#define EXPECT_CONTAINS(message, text) EXPECT_PRED2(::millrace::testing::contains, message, text)
