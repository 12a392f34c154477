// The public Result and Error, for internal code.
#pragma once

#include "millrace/result.h"  // IWYU pragma: export
