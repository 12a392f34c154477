// Result and Error are part of the public API; inside the project they are included from here.
#pragma once

#include "millrace/result.h"  // IWYU pragma: export
