// Internal include path of the public Result and Error.
#pragma once

#include "millrace/result.h"  // IWYU pragma: export
