// The built-in routers, one file each.
#pragma once

#include "models/router.h"

namespace millrace {

extern const Router kTopkRouter, kSwitchRouter;

}  // namespace millrace
