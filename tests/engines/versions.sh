# The engines that are driven, and what they need beside them. docs/engines.md states them; change both together.
vllm=0.32.0
vllm_torch=2.13.0
vllm_torchvision=0.28.0
nixl=1.5.1
sglang=0.5.23
mooncake=0.3.13.post1

versions_of() {
    case $1 in
        vllm) echo "vllm $vllm torch $vllm_torch nixl $nixl" ;;
        sglang) echo "sglang $sglang mooncake $mooncake" ;;
        *) echo "no such engine: $1" >&2; return 2 ;;
    esac
}
