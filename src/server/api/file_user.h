// Whose files and batches a request sees: each key its own, an administrator all.
#pragma once

#include "server/api/endpoint.h"
#include "server/batch/file_store.h"

namespace millrace {

FileUser user_of(const Call& call);

}  // namespace millrace
