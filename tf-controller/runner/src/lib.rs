//! One Terraform run, start to end, in a pod or as a child process.
