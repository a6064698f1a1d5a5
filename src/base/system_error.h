// Failed system calls as Errors: where the system's own limits (files, threads, address space) end
// a run, the code is kSystemLimit and the text names the limit.
// Thread rule: plain functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "spillway/error.h"

namespace spillway {

// Throws: Error with "`what`: reason; advice". EMFILE, ENFILE, ENOMEM and EAGAIN are kSystemLimit
// with the advice that fits; every other errno is `otherwise` with `advice`.
// Requires: EAGAIN does not mean "not ready": the caller has waited already.
[[noreturn]] void ThrowSystemError(int error, std::string_view what, ErrorCode otherwise,
                                   std::string_view advice);

// What gives a file the room that was refused; empty where `error` means something else.
std::string_view RoomAdvice(int error);

// Memory that is refused here (ulimit -v) says nothing about how much the machine has.
bool IsAddressSpaceLimited();

}  // namespace spillway
