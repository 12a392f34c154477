// Used by instruction sets that convert and multiply levels instead of looking them up (vector/affine_levels.h).
#pragma once

namespace millrace {
namespace {

struct LevelTables {};

}  // namespace
}  // namespace millrace
