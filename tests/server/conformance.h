// Records what a test shows of an API, as a line of the lists in docs/conformance. GoogleTest's report carries the
// lines, and tests/server/conformance.py creates the lists of those that passed. Tests that report nothing are listed
// in conformance_cases.txt.
//
//   "case 0": "openai \t POST /v1/completions \t refused \t a prompt that does not fit"
//              API     endpoint                kind       what is shown
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace millrace {

// Kinds: "holds", "refused", "unsupported"; "field", where `what` is a field and, after a tab, what is refused in it.
inline void shows(const std::string& api, const std::string& endpoint, const std::string& kind,
                  const std::string& what) {
  const int count = testing::UnitTest::GetInstance()->current_test_info()->result()->test_property_count();
  testing::Test::RecordProperty("case " + std::to_string(count), api + '\t' + endpoint + '\t' + kind + '\t' + what);
}

}  // namespace millrace
