// For instruction sets that convert and multiply levels (vector/affine_levels.h).
#pragma once

namespace millrace {
namespace {

struct LevelTables {};

}  // namespace
}  // namespace millrace
