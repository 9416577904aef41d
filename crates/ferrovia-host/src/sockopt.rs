//! Socket options that neither the standard library nor socket2 reads.
#![allow(unsafe_code, reason = "getsockopt is a call into the C library")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Reads an option into a buffer, whose content is also what the kernel is asked with. Returns how many bytes it wrote.
pub(crate) fn get(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(buffer.len())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the kernel writes no more than `length` bytes to the buffer, which is as long as that, and the new length to `length`; both
    // live for the whole call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            buffer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(length as usize)
    } else {
        Err(io::Error::last_os_error())
    }
}
