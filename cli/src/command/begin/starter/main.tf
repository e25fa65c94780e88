# A module without a provider: it needs no account of a cloud, and nothing is downloaded.
variable "subject" {
  type    = string
  default = "world"
}

resource "terraform_data" "hello" {
  input = "Hello, ${var.subject}!"
}

output "hello" {
  value = terraform_data.hello.output
}
