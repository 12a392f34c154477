// The built-in suites; builtin.cc lists them.
#pragma once

#include "compare/suite.h"

namespace millrace {

extern const CompareSuite kPerplexitySuite;
extern const CompareSuite kDocumentsSuite;
extern const CompareSuite kLabSuite;
extern const CompareSuite kNeedleSuite;
extern const CompareSuite kChoiceSuite;
extern const CompareSuite kExactSuite;
extern const CompareSuite kSpecSuite;
extern const CompareSuite kServeSuite;
extern const CompareSuite kScalingSuite;
extern const CompareSuite kMemorySuite;

}  // namespace millrace
