// This host: processor, threads, and memory that may be used.
// Thread rule: any thread; reads /proc and /sys.
#pragma once

#include <cstdint>
#include <string>

namespace spillway {

// Memory this process may still take: the smaller of MemAvailable and the headroom of every
// enclosing cgroup (v2 and v1), page cache not counted as used. Throws: Error kSystemLimit (open
// files).
int64_t AvailableMemoryBytes();

// Resident memory of this process now, and its high-water mark.
int64_t ResidentBytes();
int64_t PeakResidentBytes();
// Lets the mark begin anew at what is resident now.
void ForgetPeakResidentBytes();

// "Intel(R) Xeon(R) Processor"; "unknown processor" where the system does not say.
std::string ProcessorName();

}  // namespace spillway
