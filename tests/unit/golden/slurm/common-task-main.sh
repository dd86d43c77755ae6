stage='the GPU was looked for'
find_gpu
stage='files were copied to the node'
make_local
stage='the image was made available'
image_ready
stage='the container was started'
container_start
stage='cells were run'
while container_running; do
    collect
    pause
done
container_result
exit 0
