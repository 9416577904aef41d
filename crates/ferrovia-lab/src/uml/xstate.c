/* Lets user-mode Linux run on processors whose register state is larger than it knows (AMX: 11 KiB).
 *
 * The host kernel takes NT_X86_XSTATE only as a whole and answers anything shorter with EFAULT, which the guest's kernel takes for the
 * end of its process. So the part that it sets is laid over the state that the process has.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef long (*ptrace_call)(int request, pid_t pid, void *addr, void *data);

static long set_whole_state(ptrace_call call, pid_t pid, const struct iovec *part)
{
	static char state[64 * 1024];
	struct iovec whole = { state, sizeof(state) };

	if (part->iov_len > sizeof(state))
		return call(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, (void *)part);
	if (call(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &whole) < 0)
		return -1;
	memcpy(state, part->iov_base, part->iov_len);
	return call(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, &whole);
}

long ptrace(enum __ptrace_request request, ...)
{
	static ptrace_call call;
	va_list arguments;

	if (!call)
		call = (ptrace_call)dlsym(RTLD_NEXT, "ptrace");
	va_start(arguments, request);
	pid_t pid = va_arg(arguments, pid_t);
	void *addr = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);
	if (request == PTRACE_SETREGSET && addr == (void *)NT_X86_XSTATE)
		return set_whole_state(call, pid, data);
	return call(request, pid, addr, data);
}
